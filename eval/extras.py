def add(bench, result):
    pass
