"""The machine in words, and its peaks as eval/peaks.c measures them."""
import json
import os
import re
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


def machine():
    with open("/proc/cpuinfo") as f:
        found = dict(re.findall(r"^(model name|flags|Features)\s*:\s*(.*)$", f.read(), re.M))
    flags = found.get("flags", found.get("Features", "")).split()
    width = next((w for w in ("avx512f", "avx2", "asimd") if w in flags), "no vectors")
    return f"{found.get('model name', 'unknown processor')}, {os.cpu_count()} CPUs, {width}"


def peaks(folder):
    program = os.path.join(folder, "peaks")
    subprocess.run([os.environ.get("CC", "cc"), "-O3", "-march=native", "-pthread", "-o", program,
                    os.path.join(HERE, "peaks.c")], check=True)
    return json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)
