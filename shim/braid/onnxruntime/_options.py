"""Settings of sessions and runs."""
import enum
import warnings
from typing import Any


class GraphOptimizationLevel(enum.IntEnum):
    """Means nothing here: Braid always optimizes."""
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Means nothing here: the scheduler decides what runs side by side."""
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Means nothing here."""
    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_told: set[str] = set()


def note(what: str) -> None:
    """Warns once a process that something has no effect."""
    if what not in _told:
        _told.add(what)
        warnings.warn(what, UserWarning, stacklevel=4)


class SessionOptions:
    """Settings of a session. `intra_op_num_threads` (0: the library's choice) has an effect; the
    others are kept so that programs need no change."""

    __slots__ = ("intra_op_num_threads", "inter_op_num_threads", "graph_optimization_level", "execution_mode",
                 "execution_order", "enable_profiling", "profile_file_prefix", "optimized_model_filepath",
                 "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "use_deterministic_compute",
                 "use_per_session_threads", "log_severity_level", "log_verbosity_level", "logid", "_entry")

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = ExecutionOrder.DEFAULT
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.optimized_model_filepath = ""
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self._entry: dict[str, str] = {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps the entry; none has an effect."""
        self._entry[str(key)] = str(value)

    def has_session_config_entry(self, key: str) -> bool:
        """Whether add_session_config_entry was called with this key."""
        return key in self._entry

    def get_session_config_entry(self, key: str) -> str:
        """The value of add_session_config_entry. KeyError: there is none."""
        return self._entry[key]

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Has no effect: sizes that a model leaves free stay free."""

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Has no effect: sizes that a model leaves free stay free."""

    def add_initializer(self, name: str, value: Any) -> None:
        """Not supported: the weights are compiled into the model."""
        from braid.onnxruntime._errors import NotImplemented
        raise NotImplemented("initializers cannot be replaced: Braid compiles them into the model")

    def add_external_initializers(self, names: Any, values: Any) -> None:
        """Not supported: the weights are compiled into the model."""
        self.add_initializer("", None)

    def register_custom_ops_library(self, path: str) -> None:
        """Not supported: Braid compiles the operators that `braid ops` lists."""
        from braid.onnxruntime._errors import NotImplemented
        raise NotImplemented("libraries of custom operators cannot be used: write the operator as "
                             "an ONNX function, which Braid compiles with the model")


class RunOptions:
    """Settings of a run. Setting `terminate` ends the runs in progress that were given these
    options (their thread gets a RuntimeException); the others are kept without an effect."""

    __slots__ = ("log_severity_level", "log_verbosity_level", "logid", "training_mode", "only_execute_path_to_fetches",
                 "_terminate", "_running", "_entry")

    def __init__(self) -> None:
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.training_mode = False
        self.only_execute_path_to_fetches = False
        self._terminate = False
        self._running: list[Any] = []
        self._entry: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """True: runs end."""
        return self._terminate

    @terminate.setter
    def terminate(self, value: bool) -> None:
        self._terminate = bool(value)
        if self._terminate:
            for session in list(self._running):
                session.cancel()

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps the entry; none has an effect."""
        self._entry[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of add_run_config_entry. KeyError: there is none."""
        return self._entry[key]
