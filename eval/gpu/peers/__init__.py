"""Braid and its peers on a GPU, one module each, in the form that peers/ has.

They are the programs of peers/ on the GPU and, in graphs.py, with CUDA graphs; `--device cpu` runs the
same on the CPU. Forms' names begin with the column of the table that they belong to (table.COLUMNS).
"""
