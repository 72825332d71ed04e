"""Draws the documentation's picture of one update, off a graph that TensorFlow traces for it.

    python -m tools.one_update [--check]

Writes docs/one_update.svg: what `wu-shard inspect --format html` draws of a layer that Adam trains,
for four replicas, in the same look. With --check nothing is written; exits with 1 if the page's
picture is not this one.
"""

from __future__ import annotations

import argparse
import html
import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

PICTURE = pathlib.Path(__file__).parents[1] / "docs" / "one_update.svg"

REPLICAS = 4

_WIDTH = 1000

# What stands above and below the lines of a chart, and each of these, as the style sheets have it.
_FRAME, _LINE = 96, 30

_LOOK = """
main { font: 16px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
       color: var(--ink); background: var(--paper); padding: 4px 20px 20px; border-radius: 8px; }
"""


def picture() -> str:
    """The picture as SVG: a page's figures, of one width, which a narrow screen makes smaller."""
    from tf_wu_shard.inspection.formats.update_flow import update_flows
    from tf_wu_shard.report.flow_chart import render_flow
    from tf_wu_shard.report.page_style import STYLE, WIDE_FLOW_STYLE

    with tempfile.TemporaryDirectory() as folder:
        flows = update_flows(_update(pathlib.Path(folder)))
    height = _FRAME + _LINE * max(len(chart.rows) for chart in flows.charts)
    charts = "\n".join(render_flow(chart) for chart in flows.charts)
    # Unlike in HTML, in XML a drawing says itself what it is.
    charts = charts.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ')
    style = html.escape(f"{STYLE}{WIDE_FLOW_STYLE}{_LOOK}", quote=False)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}">\n'
        f"<title>{html.escape(flows.title)}</title>\n<style>{style}</style>\n"
        f'<foreignObject width="{_WIDTH}" height="{height}">\n'
        f'<main xmlns="http://www.w3.org/1999/xhtml"><div class="figures">\n{charts}\n'
        "</div></main>\n</foreignObject>\n</svg>\n"
    )


def _update(folder: pathlib.Path) -> Any:
    """The drawn update of a saved train step."""
    import tensorflow as tf

    from tf_wu_shard.inspection.inspect import inspect
    from tf_wu_shard.inspection.steps.grounds import Question
    from tf_wu_shard.model_files.read import read_model

    tf.keras.backend.clear_session()  # which counts what it names
    layers = [tf.keras.Input((64,)), tf.keras.layers.Dense(128, name="hidden")]
    module = tf.Module()
    module.model = tf.keras.Sequential(layers, name="net")
    module.optimizer = tf.keras.optimizers.Adam(name="adam")
    module.optimizer.build(module.model.trainable_variables)

    @tf.function(input_signature=[tf.TensorSpec((8, 64)), tf.TensorSpec((8, 128))])
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((module.model(x) - y) ** 2)
        gradients = tape.gradient(loss, module.model.trainable_variables)
        module.optimizer.apply(gradients, module.model.trainable_variables)
        return loss

    module.train = train
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, str(folder), options=options)
    question = Question(replicas=REPLICAS, function="train")
    (found,) = inspect(read_model(folder), question).functions
    assert found.picture is not None, "the layer is large enough to be shared"
    return found.picture


def main(arguments: Sequence[str] | None = None) -> int:
    """Draws, and writes or compares; returns the exit status."""
    parser = argparse.ArgumentParser(prog="one_update", description="Draws one update.")
    parser.add_argument("--check", action="store_true", help="compare with the page, write nothing")
    chosen = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    drawn = picture()
    if not chosen.check:
        PICTURE.write_text(drawn, encoding="utf-8")
    elif drawn != PICTURE.read_text(encoding="utf-8"):
        print(
            f"{PICTURE.name} is not what is drawn now: python -m tools.one_update", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
