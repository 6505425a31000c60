/* entry.c: the end of the host text of programs for GPUs. */
