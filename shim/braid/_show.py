"""Models and sessions as text and, in notebooks, as HTML."""
from html import escape

from . import _braid


def type_text(io) -> str:
    """ "float32[2, N]" """
    _, kind, dtype, shape = io
    text = dtype or "any"
    if shape is not None:
        text += "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"
    elif "sequence" not in kind:
        text += "[…]"
    return kind.replace("tensor", text) if "tensor" in kind else kind.replace("sequence", f"list of {text}")


def _side(ios) -> str:
    return "(" + ", ".join(f"{io[0]}: {type_text(io)}" for io in ios) + ")"


def model_text(model: _braid.Model) -> str:
    return f"{model.name!r} for {model.target}: {_side(model.inputs)} -> {_side(model.outputs)}"


def _memory(session: _braid.Session) -> dict:
    if session.closed:
        return {"closed": "yes"}
    if not session._idle:  # its numbers would have to wait for the run
        return {"running": "yes"}
    stats = session.stats
    shown = {"threads": stats["threads"], "working memory": None}
    if stats["working_bytes"] is not None:
        shown["working memory"] = f"{stats['working_bytes']:,} bytes"
    return {k: v for k, v in shown.items() if v is not None}


def session_text(session: _braid.Session) -> str:
    more = "".join(f", {k} {v}" for k, v in _memory(session).items())
    return f"<braid.Session of {model_text(session._model)}{more}>"


def session_html(session: _braid.Session) -> str:
    return model_html(session._model, "Session", _memory(session))


def model_html(model: _braid.Model, title: str, more: dict) -> str:
    """A table of inputs, outputs, target and what `more` has."""
    carried = dict(model.carry)
    rows = []
    for what, ios in (("input", model.inputs), ("output", model.outputs)):
        for io in ios:
            note = f"state, next value: {escape(carried[io[0]])}" if what == "input" and io[0] in carried else ""
            rows.append(f"<tr><td>{what}</td><td><code>{escape(io[0])}</code></td>"
                        f"<td><code>{escape(type_text(io))}</code></td><td>{note}</td></tr>")
    facts = {"target": model.target, **({"random": "yes"} if model.draws else {}), **more}
    rows += [f"<tr><td>{escape(k)}</td><td colspan='3'>{escape(str(v))}</td></tr>" for k, v in facts.items()]
    return f"<table><caption>braid.{title} <code>{escape(model.name)}</code></caption>{''.join(rows)}</table>"
