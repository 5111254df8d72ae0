"""Pieces of real graphs, changed as no exporter would: what a rewrite may not take for the pattern that it looks for.

A piece is some neighbouring nodes of a model, its inputs the values that the model's own run had there. A change is one
that a graph of somebody else's may well contain: another consumer, another axis, another constant, another operand."""

import copy
import dataclasses
import random

import numpy
import onnx
from onnx import helper, numpy_helper

import oracle

LARGEST_CONSTANT = 64  # elements of a value that a model computes from shapes, which a piece keeps as a constant
LARGEST_PIECE = 8 << 20  # bytes of all that its nodes read


@dataclasses.dataclass
class Piece:
    model: onnx.ModelProto
    feeds: dict
    values: dict  # what the unchanged nodes compute, by name
    changes: list


def every_value(model, feeds):
    """Every value that a run of the model computes, by name; its feeds and constants, too."""
    shown = copy.deepcopy(model)
    names = [name for node in model.graph.node for name in node.output if name]
    del shown.graph.output[:]
    shown.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    computed = dict(zip(names, oracle.plain_session(shown, threads=1).run(None, feeds)))
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {**constants, **feeds, **computed}


def names_read(node):
    """A node's inputs, and what its subgraphs read from outside."""
    read = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            inside = {entry.name for entry in [*graph.input, *graph.initializer]}
            inside |= {name for inner in graph.node for name in inner.output}
            read += [name for inner in graph.node for name in names_read(inner) if name not in inside]
            read += [entry.name for entry in graph.output if entry.name not in inside]
    return read


def neighbours(model):
    """For each node the nodes that it reads from or that read from it."""
    producer = {name: i for i, node in enumerate(model.graph.node) for name in node.output if name}
    near = [set() for _ in model.graph.node]
    for i, node in enumerate(model.graph.node):
        for name in names_read(node):
            if name in producer:
                near[i].add(producer[name])
                near[producer[name]].add(i)
    return near


def is_tensor(value):
    return isinstance(value, numpy.ndarray)


def grow(model, size, chance):
    """Indices of at most `size` nodes that hang together."""
    near = neighbours(model)
    chosen = {chance.randrange(len(near))}
    edge = set(near[min(chosen)])
    while edge and len(chosen) < size:
        # The nearest in the model's order, mostly: patterns stand together.
        middle = sum(chosen) / len(chosen)
        ordered = sorted(edge, key=lambda i: abs(i - middle))
        pick = ordered[0] if chance.random() < 0.7 else chance.choice(ordered)
        chosen.add(pick)
        edge = (edge | near[pick]) - chosen
    return sorted(chosen)


def declared(name, value, chance):
    """ValueInfo of an input: its shape as it is, with free dimensions, or none at all."""
    shape = list(value.shape)
    how = chance.random()
    if how < 0.1:
        shape = None
    elif how < 0.5:
        shape = [f"{name}_{i}" if chance.random() < (0.9 if i == 0 else 0.2) else extent
                 for i, extent in enumerate(shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def cut(model, values, size, chance):
    """A piece of at most `size` nodes; None where it is too large or a value on its border is no tensor."""
    nodes = [model.graph.node[i] for i in grow(model, size, chance)]
    made = {name for node in nodes for name in node.output if name}
    inside = {id(node) for node in nodes}
    wanted = {entry.name for entry in model.graph.output}
    for node in model.graph.node:
        if id(node) not in inside:
            wanted.update(names_read(node))
    read = {name for node in nodes for name in names_read(node)}
    outputs = [name for node in nodes for name in node.output if name and (name in wanted or name not in read)]
    if sum(values[name].nbytes for name in read if is_tensor(values.get(name))) > LARGEST_PIECE:
        return None
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    fed = {value.name for value in model.graph.input}
    kept, feeds, inputs = [], {}, []
    for name in sorted(read - made):
        value = values.get(name)
        if not is_tensor(value):
            return None
        small = value.dtype.kind in "ib" and value.size <= LARGEST_CONSTANT and name not in fed
        if name in constants or small and chance.random() < 0.7:
            kept.append(constants[name] if name in constants else numpy_helper.from_array(value, name))
        else:
            feeds[name] = value
            inputs.append(declared(name, value, chance))
    if not all(is_tensor(values.get(name)) for name in outputs):
        return None
    graph = helper.make_graph([copy.deepcopy(node) for node in nodes], "piece", inputs,
                              [helper.make_empty_tensor_value_info(name) for name in outputs], kept)
    piece = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    piece.functions.extend(model.functions)
    return Piece(piece, feeds, {name: values[name] for name in (read | made) if is_tensor(values.get(name))}, [])


# Changes: each takes a piece and a source of choices, and returns what it did, or None where there is nothing to change.


def fresh(piece, stem):
    taken = {name for node in piece.model.graph.node for name in node.output} | set(piece.values)
    number = 0
    while f"{stem}_{number}" in taken:
        number += 1
    return f"{stem}_{number}"


def choose_node(piece, chance, admits=lambda node: True):
    nodes = [i for i, node in enumerate(piece.model.graph.node) if admits(node)]
    return chance.choice(nodes) if nodes else None


def tap(piece, chance):
    """An inner value is an output, too."""
    shown = {entry.name for entry in piece.model.graph.output}
    names = [name for node in piece.model.graph.node for name in node.output if name and name not in shown]
    if not names:
        return None
    name = chance.choice(names)
    piece.model.graph.output.append(helper.make_empty_tensor_value_info(name))
    return f"shows {name}"


def consume(piece, chance):
    """An inner value has another consumer."""
    names = [name for node in piece.model.graph.node for name in node.output
             if name in piece.values and piece.values[name].dtype == numpy.float32]
    if not names:
        return None
    name, added = chance.choice(names), fresh(piece, "consumed")
    operator = chance.choice(["Neg", "Relu", "Identity", "Sigmoid"])
    piece.model.graph.node.append(helper.make_node(operator, [name], [added]))
    piece.model.graph.output.append(helper.make_empty_tensor_value_info(added))
    return f"{operator} of {name}"


UNARY = ["Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "Identity", "Sqrt", "Exp", "LeakyRelu", "HardSigmoid"]
BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min"]
REDUCTIONS = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"]
POOLS = ["MaxPool", "AveragePool"]
GLOBAL_POOLS = ["GlobalAveragePool", "GlobalMaxPool"]
SOFTMAXES = ["Softmax", "LogSoftmax"]
FAMILIES = [UNARY, BINARY, REDUCTIONS, POOLS, GLOBAL_POOLS, SOFTMAXES]
KEPT_ATTRIBUTES = {"axis", "axes", "keepdims", "kernel_shape", "strides", "pads", "auto_pad"}


def family(operator):
    return next((members for members in FAMILIES if operator in members), None)


def replace_operator(piece, chance):
    """Another operator of the same family."""
    i = choose_node(piece, chance, lambda node: family(node.op_type))
    if i is None:
        return None
    node = piece.model.graph.node[i]
    before = node.op_type
    node.op_type = chance.choice([name for name in family(before) if name != before])
    attributes = [attribute for attribute in node.attribute if attribute.name in KEPT_ATTRIBUTES]
    del node.attribute[:]
    node.attribute.extend(attributes)
    return f"{before} is {node.op_type}"


def swap_operands(piece, chance):
    i = choose_node(piece, chance, lambda node: len(node.input) >= 2 and node.input[0] and node.input[1])
    if i is None:
        return None
    node = piece.model.graph.node[i]
    a, b = chance.sample([k for k in range(len(node.input)) if node.input[k]], 2)
    node.input[a], node.input[b] = node.input[b], node.input[a]
    return f"operands of {node.op_type}"


SWITCHES = {"allowzero", "ceil_mode", "count_include_pad", "exclude_outside", "exclusive", "is_causal", "keepdims", "largest",
            "linear_before_reset", "noop_with_empty_axes", "reverse", "select_last_index", "sorted", "stash_type", "time_axis",
            "transA", "transB"}


def change_attribute(piece, chance):
    kinds = (onnx.AttributeProto.INT, onnx.AttributeProto.INTS, onnx.AttributeProto.FLOAT)
    i = choose_node(piece, chance, lambda node: any(a.type in kinds for a in node.attribute))
    if i is None:
        return None
    node = piece.model.graph.node[i]
    attribute = chance.choice([a for a in node.attribute if a.type in kinds])
    if attribute.type == onnx.AttributeProto.INT and attribute.name in SWITCHES:
        attribute.i = 1 - attribute.i
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = attribute.i + chance.choice([-2, -1, 1, 2])
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = attribute.f * chance.choice([0.5, 2, -1, 10]) + chance.choice([0, 0, 0.125])
    elif attribute.ints:
        entries = list(attribute.ints)
        if chance.random() < 0.5:
            chance.shuffle(entries)
        else:
            entries[chance.randrange(len(entries))] += chance.choice([-1, 1])
        attribute.ints[:] = entries
    return f"{attribute.name} of {node.op_type}"


def drop_attribute(piece, chance):
    i = choose_node(piece, chance, lambda node: len(node.attribute) > 0 and node.op_type != "Constant")
    if i is None:
        return None
    node = piece.model.graph.node[i]
    k = chance.randrange(len(node.attribute))
    name = node.attribute[k].name
    del node.attribute[k]
    return f"{node.op_type} without {name}"


def constants_of(piece):
    """Arrays of initializers and of Constant nodes, each with how to write it back."""
    graph = piece.model.graph
    found = [(tensor.name, numpy_helper.to_array(tensor), tensor) for tensor in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant":
            found += [(node.output[0], numpy_helper.to_array(a.t), a.t) for a in node.attribute if a.name == "value"]
    return found


def change_elements(piece, chance):
    """Other elements in a constant: one of them, or all."""
    found = [entry for entry in constants_of(piece) if entry[1].size and entry[1].dtype.kind in "fib"]
    if not found:
        return None
    found.sort(key=lambda entry: entry[1].size > LARGEST_CONSTANT)
    few = [entry for entry in found if entry[1].size <= LARGEST_CONSTANT]
    name, array, tensor = chance.choice(few if few and chance.random() < 0.8 else found)
    array = array.copy()
    flat = array.reshape(-1)
    at = chance.randrange(flat.size)
    how = chance.random()
    if array.dtype == bool:
        flat[at] = not flat[at]
    elif array.dtype.kind == "i":
        flat[at] += chance.choice([-1, 1])
        if how < 0.3:
            chance.shuffle(flat)
    elif how < 0.4:
        flat[at] = flat[at] * chance.choice([0.5, 2, -1]) + chance.choice([0, 0.25])
    elif how < 0.8:
        array = (array * numpy.float64(chance.choice([0.5, 2, -1, 0]))).astype(array.dtype)
    else:
        array = numpy.full_like(array, chance.choice([0, 1, -1, 0.5, 2, 3]))
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return f"elements of {name}"


def change_shape(piece, chance):
    """A constant of another shape: an axis of one more or less, one element for all, or repeated."""
    found = [entry for entry in constants_of(piece) if entry[1].dtype.kind == "f" and entry[1].size]
    if not found:
        return None
    name, array, tensor = chance.choice(found)
    how = chance.randrange(4)
    if how == 0:
        array = numpy.expand_dims(array, chance.randrange(array.ndim + 1))
    elif how == 1 and 1 in array.shape:
        array = numpy.squeeze(array, array.shape.index(1))
    elif how == 2 and array.ndim:
        array = numpy.take(array, [0], chance.randrange(array.ndim))
    elif array.ndim and 1 in array.shape:
        array = numpy.repeat(array, chance.choice([2, 3]), array.shape.index(1))
    else:
        return None
    array = numpy.ascontiguousarray(array)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    piece.values[name] = array
    return f"shape of {name}"


def feed_constant(piece, chance):
    """A constant comes as an input."""
    graph = piece.model.graph
    if not graph.initializer:
        return None
    i = chance.randrange(len(graph.initializer))
    tensor = graph.initializer[i]
    array = numpy_helper.to_array(tensor)
    graph.input.append(declared(tensor.name, array, chance))
    piece.feeds[tensor.name] = array
    name = tensor.name
    del graph.initializer[i]
    return f"{name} is an input"


def fix_feed(piece, chance):
    """An input becomes a constant."""
    graph = piece.model.graph
    if len(graph.input) < 2:
        return None
    i = chance.randrange(len(graph.input))
    name = graph.input[i].name
    if piece.feeds[name].nbytes > 1 << 20:
        return None
    graph.initializer.append(numpy_helper.from_array(piece.feeds.pop(name), name))
    del graph.input[i]
    return f"{name} is a constant"


def rewire(piece, chance):
    """An operand is another value of its type and shape, computed before it."""
    graph = piece.model.graph
    i = choose_node(piece, chance, lambda node: len(node.input) > 0)
    if i is None:
        return None
    node = graph.node[i]
    k = chance.randrange(len(node.input))
    old = piece.values.get(node.input[k])
    if old is None:
        return None
    before = {entry.name for entry in [*graph.input, *graph.initializer]}
    before |= {name for other in graph.node[:i] for name in other.output if name}
    same_shape = chance.random() < 0.8
    names = [name for name in sorted(before) if name != node.input[k] and name in piece.values
             and piece.values[name].dtype == old.dtype
             and (piece.values[name].shape == old.shape if same_shape else piece.values[name].ndim == old.ndim)]
    if not names:
        return None
    node.input[k] = chance.choice(names)
    return f"operand {k} of {node.op_type} is {node.input[k]}"


def insert(piece, chance):
    """A node on an edge: element by element, a transposition, a reshape to and fro."""
    graph = piece.model.graph
    i = choose_node(piece, chance, lambda node: any(name in piece.values for name in node.input))
    if i is None:
        return None
    node = graph.node[i]
    k = chance.choice([k for k, name in enumerate(node.input) if name in piece.values])
    name, value = node.input[k], piece.values[node.input[k]]
    added = fresh(piece, "inserted")
    how = chance.randrange(4)
    if how == 0 and value.ndim >= 2:
        order = list(range(value.ndim))
        chance.shuffle(order)
        nodes = [helper.make_node("Transpose", [name], [added], perm=order)]
        if chance.random() < 0.5:
            again = fresh(piece, "restored")
            nodes.append(helper.make_node("Transpose", [added], [again], perm=[order.index(d) for d in range(value.ndim)]))
            added = again
    elif how == 1 and value.ndim >= 1:
        target = fresh(piece, "target")
        extents = list(value.shape)
        if chance.random() < 0.5:
            extents.insert(chance.randrange(len(extents) + 1), 1)
        else:
            extents[chance.randrange(len(extents))] = -1
        graph.initializer.append(numpy_helper.from_array(numpy.array(extents, numpy.int64), target))
        nodes = [helper.make_node("Reshape", [name, target], [added])]
    elif value.dtype.kind == "f":
        constant = fresh(piece, "constant")
        if chance.random() < 0.5:
            nodes = [helper.make_node(chance.choice(["Relu", "Identity", "Neg", "Sigmoid"]), [name], [added])]
        else:
            shape = [d if chance.random() < 0.4 else 1 for d in value.shape][chance.randrange(value.ndim + 1):]
            filled = numpy.random.default_rng(chance.randrange(1 << 30)).uniform(-1, 1, shape).astype(value.dtype)
            graph.initializer.append(numpy_helper.from_array(filled, constant))
            operands = [name, constant] if chance.random() < 0.5 else [constant, name]
            nodes = [helper.make_node(chance.choice(["Add", "Mul", "Sub"]), operands, [added])]
            piece.values[constant] = filled
    else:
        return None
    node.input[k] = added
    for offset, made in enumerate(nodes):
        graph.node.insert(i + offset, made)
    return f"{' '.join(made.op_type for made in nodes)} before operand {k} of {node.op_type}"


def repeat(piece, chance):
    """A node is computed twice; its second result goes where one of its consumers read the first."""
    graph = piece.model.graph
    i = choose_node(piece, chance)
    node = graph.node[i]
    twin = copy.deepcopy(node)
    names = {name: fresh(piece, f"twin_{number}") for number, name in enumerate(node.output) if name}
    twin.output[:] = [names.get(name, "") for name in node.output]
    readers = [other for other in graph.node[i + 1:] if any(name in names for name in other.input)]
    if not readers:
        return None
    reader = chance.choice(readers)
    reader.input[:] = [names.get(name, name) for name in reader.input]
    graph.node.insert(i + 1, twin)
    return f"{node.op_type} twice"


def remove(piece, chance):
    """What a node of one operand gives is its operand."""
    graph = piece.model.graph
    shown = {entry.name for entry in graph.output}
    i = choose_node(piece, chance, lambda node: len(node.output) == 1 and node.output[0] not in shown and node.input
                    and node.input[0])
    if i is None:
        return None
    node = graph.node[i]
    source, gone, operator = node.input[0], node.output[0], node.op_type
    del graph.node[i]
    for other in graph.node:
        other.input[:] = [source if name == gone else name for name in other.input]
    return f"no {operator}"


def resize_feeds(piece, chance):
    """Another extent for what one free dimension's inputs share by chance: the first axis of all inputs that agree."""
    extents = sorted({value.shape[0] for value in piece.feeds.values() if value.ndim})
    if not extents:
        return None
    old = chance.choice(extents)
    new = chance.choice([1, 2, 3, old + 1, 0])
    if new == old:
        return None
    for name, value in piece.feeds.items():
        if value.ndim and value.shape[0] == old:
            piece.feeds[name] = numpy.ascontiguousarray(
                numpy.take(value, [j % old for j in range(new)] if old else [], 0)) if old else value
    for entry in piece.model.graph.input:
        dims = entry.type.tensor_type.shape.dim
        if len(dims) and dims[0].dim_value == old:
            dims[0].dim_param = f"first_{old}"
    return f"first axes of {old} are {new}"


CHANGES = [tap, consume, replace_operator, swap_operands, change_attribute, drop_attribute, change_elements,
           change_elements, change_shape, feed_constant, fix_feed, rewire, insert, insert, repeat, remove, resize_feeds]


def mutate(piece, chance):
    """One to three changes, or none at all one time in eight."""
    if chance.random() < 0.125:
        return
    for _ in range(chance.randint(1, 3)):
        change = chance.choice(CHANGES)(piece, chance)
        if change:
            piece.changes.append(change)


def drop_unread(piece):
    """Feeds and constants that nothing reads any more go."""
    graph = piece.model.graph
    read = {name for node in graph.node for name in names_read(node)} | {entry.name for entry in graph.output}
    for entries in (graph.input, graph.initializer):
        kept = [copy.deepcopy(entry) for entry in entries if entry.name in read]
        del entries[:]
        entries.extend(kept)
    named = {entry.name for entry in graph.input}
    piece.feeds = {name: value for name, value in piece.feeds.items() if name in named}


def mutant(model, values, seed, largest=24):
    """The piece that this seed cuts and changes; None where it hits no tensors."""
    chance = random.Random(seed)
    piece = cut(model, values, chance.randint(2, largest), chance)
    if piece is None:
        return None
    mutate(piece, chance)
    drop_unread(piece)
    return piece
