"""How Sphinx builds the site: Markdown pages, the API reference from docstrings, no network.

`make docs` builds it with every warning an error, unresolved references included.
"""

import os
import pathlib
import sys

# What TensorFlow says of the machine is no part of a build's output.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# The directive that lists a command's options lies beside this file.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

project = "tf-wu-shard"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "command_options"]

# Pages link to each other's headings as a code host does.
myst_heading_anchors = 3

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
napoleon_use_ivar = True
autodoc_member_order = "bysource"
# What a class is made with stands in its __init__.
autoclass_content = "both"
# A single backtick in a docstring is code.
default_role = "code"

# References that lead out of the site. Their pages are not asked for, as a build needs no network.
nitpick_ignore_regex = [
    # TensorFlow, Keras and NumPy document themselves elsewhere, and by other names than modules of
    # theirs.
    (r"py:class", r"(tensorflow\.python|keras\.src|numpy)\..*"),
    # Python does so too.
    (r"py:class", r"(collections\.abc|os)\..*"),
    # What grounds and passes of one's own are given says in its docstring what it is.
    (
        r"py:class",
        r"tf_wu_shard\.(graph|grounds|refusals|replicas|step|tensorflow_private)\..*|MakeDialect",
    ),
]

# Blocks of pages say what they are; those of docstrings are formulas.
highlight_language = "none"
# Two hyphens between a parameter and its text are a dash; quotation marks stay those of the code.
smartquotes_action = "D"

html_theme = "furo"
html_title = "tf-wu-shard"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
