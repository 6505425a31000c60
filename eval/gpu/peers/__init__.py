"""Braid and its peers on a GPU, one module each, with the interface of peers/.

They are the programs of peers/ on the GPU, and in graphs.py with CUDA graphs; `--device cpu` runs
them on the CPU. The name of a form begins with its column of the table (table.COLUMNS).
"""
