"""Answers made by hand: with any names, of any size."""

from __future__ import annotations

from tf_wu_shard.inspection.answers.answer import (
    FunctionAnswer,
    Inspection,
    MemoryRow,
    PictureGradient,
    PictureOp,
    PictureTensor,
    UpdateAnswer,
    UpdatePicture,
)
from tf_wu_shard.inspection.answers.graph_diff import GraphDiff
from tf_wu_shard.report.report import Bytes, Report, ShardedVariable
from tf_wu_shard.report.share import LeftAloneVariable, Share

WHOLE = PictureTensor((64, 32), "float32", 8192)
SHARD = PictureTensor((256,), "float32", 1024)

# Markup of HTML and Markdown, escapes of a terminal, characters that turn text around, what is no
# character at all.
HOSTILE = (
    "</td></svg></style></script><script>alert(1)</script><img src=x onerror=alert(2)>"
    "\x1b[2J\x1b]0;x\x07\r\n\x00\u202e\u2066\ud800"
    "`code` ``` | [a](http://b) ![c](d) <e@f.g> **h** &amp; &#60; --> ]]> {{i}} ${j} ' \" \\"
)


def op(
    name: str, position: int, *, part: int = 0, of: str = "w", writes: bool = False
) -> PictureOp:
    """An op that reads the one before it; the first one reads the gradient."""
    return PictureOp(
        name=name,
        type="AssignSubVariableOp" if writes else "Mul",
        reads=(position - 1,) if position else (),
        gradients=() if position else (0,),
        follows=None,
        part=part,
        writes_for=of,
        variable=of if writes else "",
        writes=writes,
        whole=WHOLE,
        shard=SHARD,
        summed=False,
    )


def chain(name: str, count: int) -> tuple[PictureOp, ...]:
    """Ops that read each other, the last of which writes the weight."""
    return tuple(op(name, i, of=name, writes=i == count - 1) for i in range(count))


def picture(name: str = "w", ops: tuple[PictureOp, ...] | None = None) -> UpdatePicture:
    """An update of some ops; of three in a chain where none are given."""
    return UpdatePicture(
        variable=name,
        replicas=8,
        layout="flat 2048/8",
        owned=False,
        gradients=(PictureGradient(name, name, WHOLE, SHARD),),
        ops=chain(name, 3) if ops is None else ops,
        weight=WHOLE,
        weight_shard=SHARD,
        gathered=WHOLE,
        in_shards=(),
        weight_in_shards=False,
    )


def answer(name: str = "w", variables: int = 1, functions: int = 1) -> Inspection:
    """Half of the variables are sharded, the others are left alone for a reason of their own."""
    names = [f"{name}{number}" for number in range(variables)]
    half = (variables + 1) // 2
    report = Report(
        function=name,
        verdict="partly sharded",
        num_replicas=8,
        variables=tuple(
            ShardedVariable(n, (64, 32), "float32", "flat 2048/8", (f"{n}_m",), 0, 0)
            for n in names[:half]
        ),
        left_alone=tuple(
            LeftAloneVariable(n, f"no rule for {name}", name, cure=f"an update without {name}")
            for n in names[half:]
        ),
        notes=(name,),
        slot_bytes_per_replica=Bytes(8192, 1024),
        wire_bytes=Bytes(8192, 8192),
        emitted={},
        elements=Share(2048 * half, 2048 * variables),
        slot_bytes=Share(8192 * half, 8192 * variables),
        place=name,
    )
    updates = tuple(
        UpdateAnswer(n, "adam-like", name, (f"{n}_m",), (64, 32), "float32", name, 8192)
        for n in names
    )
    found = FunctionAnswer(
        name=name,
        trains=True,
        verdict=name,
        writes=variables,
        updates=updates,
        report=report,
        memory=tuple(MemoryRow(2**i, Bytes(9, 9), Bytes(8192, 8192 >> i)) for i in range(1, 11)),
        picture=picture(name),
        source_lines=((name, name),),
        diff=GraphDiff(name, 1, 1, 1, ("@@ -1,2 +1,2 @@", f" {name}", f"-{name}", f"+{name}")),
    )
    return Inspection(name, variables, (found,) * functions, (name,), name)
