"""ray_connect.py: the cluster that RAY_ADDRESS names, or a Ray of this machine's own."""
import os

import ray


def connect(cpus: int) -> None:
    """Connects to the cluster; without one, starts Ray here with as many CPUs, reachable from this machine alone. Its
    processes find the examples' modules."""
    here = os.path.dirname(os.path.abspath(__file__))
    own = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": cpus, "_node_ip_address": "127.0.0.1", "include_dashboard": False}
    ray.init(log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": here}}, **own)
