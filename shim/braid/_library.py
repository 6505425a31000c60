"""What compile() and load() return."""
from __future__ import annotations

import threading
from typing import Any, NamedTuple

from . import _braid, _show


class IO(NamedTuple):
    """An input or output as the model declares it."""
    name: str
    kind: str                                      # "tensor", "sequence", "optional(tensor)", "optional(sequence)"
    dtype: str | None                              # NumPy's or ml_dtypes' name; None: not declared
    shape: tuple[int | str | None, ...] | None     # sizes, names of sizes, None: any; None: not declared

    def __str__(self) -> str:
        return f"{self.name}: {_show.type_text(self)}"


class Library:
    """A compiled model. compile() and load() make it; threads may share it.

    library(*args, **inputs) runs it in a session of the calling thread's own, see Session. It can be pickled if it came
    from a file: the other process loads that file, or compiles it (which takes no time where the cache has it).

    >>> library = braid.compile(model)
    >>> library.inputs
    (IO(name='x', kind='tensor', dtype='float32', shape=(2,)),)
    >>> library(x=[1, 2])
    array([-1., -2.], dtype=float32)
    """
    __slots__ = ("_model", "_path", "_source", "_local", "__weakref__")

    def __init__(self, model: _braid.Model, path: str | None = None, source: tuple[str, dict[str, Any]] | None = None):
        if not isinstance(model, _braid.Model):
            raise TypeError("braid.compile and braid.load make a Library")
        self._model, self._path, self._source = model, path, source
        self._local = threading.local()  # a thread's session ends with it

    @property
    def name(self) -> str:
        """The name of the model's graph."""
        return self._model.name

    @property
    def target(self) -> str:
        """What it is compiled for: "cpu", "interp", "cuda:sm_90", …"""
        return self._model.target

    @property
    def inputs(self) -> tuple[IO, ...]:
        """The inputs in graph order."""
        return tuple(IO(*x) for x in self._model.inputs)

    @property
    def outputs(self) -> tuple[IO, ...]:
        """The outputs in graph order."""
        return tuple(IO(*x) for x in self._model.outputs)

    @property
    def carry(self) -> tuple[tuple[str, str], ...]:
        """The state that Session.step keeps: pairs of an input and the output that is its next value."""
        return self._model.carry

    @property
    def path(self) -> str | None:
        """The library's file; None: it is in the cache, or interpreted."""
        return self._path

    @property
    def draws(self) -> bool:
        """Whether outputs depend on random numbers (Session.seed)."""
        return self._model.draws

    def session(self, *, threads: int | None = None, max_iterations: int | None = None,
                stack_depth: int | None = None, device: int | None = None, max_memory: int | None = None,
                seed: int | None = None) -> _braid.Session:
        """Makes a session: threads and working memory for runs.

        threads: of the session, the caller's included (None: the library's choice).
        max_iterations: limit for each loop (None: 2**31); more is a RunError.
        stack_depth: limit for recursion (None: 10000); deeper is a RunError.
        device: the number of the GPU (None: of the current context, else $BRAID_DEVICE, else 0).
        max_memory: limit for working memory, in bytes; more is an OutOfMemoryError.
        seed: of the random numbers (None: another one in every run).

        >>> with braid.compile(model).session(threads=1) as session:
        ...     session(x=np.float32([3, 4]))
        array([-3., -4.], dtype=float32)
        """
        return self._model.session(threads=threads, max_iterations=max_iterations, stack_depth=stack_depth,
                                   device=device, max_memory=max_memory, seed=seed)

    def __call__(self, /, *args: Any, **inputs: Any) -> Any:
        try:
            session = self._local.session
        except AttributeError:
            session = self._local.session = self._model.session()
        return session(*args, **inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._source is None:
            raise TypeError("a library of a model in memory cannot be pickled: compile it with output=FILE, or from a file")
        from . import _load
        return _load._load_file, self._source

    def __copy__(self) -> Library:
        """Itself: it never changes."""
        return self

    def __deepcopy__(self, memo: Any) -> Library:
        """Itself: it never changes."""
        return self

    def __repr__(self) -> str:
        return f"<braid.Library {_show.model_text(self._model)}>"

    def _repr_html_(self) -> str:
        return _show.model_html(self._model, "Library", {})
