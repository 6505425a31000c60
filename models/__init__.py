"""Benchmark models as ONNX files, with references in numpy.

Each module has
    export(batch, length, seed, …) -> onnx.ModelProto      its defaults are the published sizes
    weights(…) and inputs(…) -> {name: array}               random, from the seed alone
    reference(inputs, weights, …) -> [array]                the expected outputs
    CASES {name: options}                                   the models, some of them in several forms
    FORMS {name: {form: options}}                           the three forms of models/words.py, as NAME_FORM
    SMALL {option: value}                                   sizes for tests
build() puts them together.
"""
import importlib
import inspect

MODULES = ("lstm", "nasrnn", "attention", "seq2seq", "mamba", "rnnt", "bert", "blockdrop",
           "skipnet", "earlyexit", "experts", "recursion", "dag", "syntax", "trips")


def modules():
    return [importlib.import_module(f"models.{name}") for name in MODULES]


def cases():
    """{name of a model: its module}, in the order of MODULES."""
    return {case: module for module in modules() for case in module.CASES}


def forms():
    """{name of a form: (the model's name, the form, its module)}"""
    return {f"{name}_{form}": (name, form, module) for module in modules()
            for name, own in module.FORMS.items() for form in own}


def module_of(name):
    """The module of a model or of a form, and its options."""
    if name in cases():
        module = cases()[name]
        return module, module.CASES[name]
    model, form, module = forms()[name]
    return module, module.FORMS[model][form]


def options(name, small=False, **given):
    """All options of a model: the exporter's defaults, the model's form, then those given."""
    module, form = module_of(name)
    known = {k: p.default for k, p in inspect.signature(module.export).parameters.items()}
    for k in given:
        if k not in known:
            raise ValueError(f"{name} has no option {k}; it has {', '.join(known)}")
    return {**known, **form, **(module.SMALL if small else {}), **given}


class Built:
    """A model with inputs and the outputs expected for them."""

    def __init__(self, name, small=False, **given):
        module, _ = module_of(name)
        self.name = name
        self.options = options(name, small, **given)
        self.model = module.export(**self.options)
        self.weights = module.weights(**self.options)
        self.inputs = module.inputs(**self.options)
        self.expected = module.reference(self.inputs, self.weights, **self.options)


def build(name, small=False, **given):
    """build("lstm_split", batch=64): model, inputs, expected, weights, options."""
    return Built(name, small, **given)
