"""Operators that no inference graph holds. They share a record, which says why, and nothing of dtypes."""

from __future__ import annotations

from mxamp.ops.facts import OperatorFacts
from mxamp.ops.facts_table import OperatorFamily
from mxamp.ops.roles import InputRole

_GRADIENT = "a gradient: MXNet runs it in backward passes alone"
_UPDATE = "a training step: it updates weights and optimizer states in place"
_SUPERVISION = "a training step: it looks at all gradients at once"
_AUGMENTATION = "random image augmentation, for training data"
_SAMPLING = "draws a random part of a graph, for a training batch"
_IMPERATIVE = "works on arrays at once; MXNet cannot infer dtypes for a graph that holds it"
_IMAGE_FILES = "reads, decodes or resizes images before they reach a network"

_NAMES = {
    _UPDATE: """
        sgd_update=_sparse_sgd_update sgd_mom_update=_sparse_sgd_mom_update mp_sgd_update mp_sgd_mom_update
        multi_sgd_update multi_sgd_mom_update multi_mp_sgd_update multi_mp_sgd_mom_update
        preloaded_multi_sgd_update preloaded_multi_sgd_mom_update
        preloaded_multi_mp_sgd_update preloaded_multi_mp_sgd_mom_update
        nag_mom_update mp_nag_mom_update signsgd_update signum_update
        adam_update=_sparse_adam_update
        _adamw_update _mp_adamw_update _multi_adamw_update _multi_mp_adamw_update
        lamb_update_phase1 lamb_update_phase2 mp_lamb_update_phase1 mp_lamb_update_phase2
        _multi_lamb_update _multi_mp_lamb_update
        ftml_update ftrl_update=_sparse_ftrl_update rmsprop_update rmspropalex_update
        _sparse_adagrad_update _contrib_group_adagrad_update
    """,
    _SUPERVISION: "all_finite multi_all_finite multi_sum_sq multi_lars reset_arrays",
    _AUGMENTATION: """
        _image_random_brightness=_npx__image_random_brightness
        _image_random_contrast=_npx__image_random_contrast
        _image_random_saturation=_npx__image_random_saturation _image_random_hue=_npx__image_random_hue
        _image_random_color_jitter=_npx__image_random_color_jitter
        _image_random_lighting=_npx__image_random_lighting
        _image_random_flip_left_right=_npx__image_random_flip_left_right
        _image_random_flip_top_bottom=_npx__image_random_flip_top_bottom
    """,
    _SAMPLING: "_contrib_dgl_csr_neighbor_uniform_sample _contrib_dgl_csr_neighbor_non_uniform_sample",
    _IMPERATIVE: "_copyto=_npi_copyto _set_value _onehot_encode fill_element_0index",
    _IMAGE_FILES: """
        _cvimread=_npi_cvimread _cvimdecode=_npi_cvimdecode _cvimresize=_npi_cvimresize _cvcopyMakeBorder
        _imdecode
    """,
    _GRADIENT: "_NoGradient",
}
"""Reason -> names, each with its alias behind an equals sign."""

RECORDS = tuple(
    OperatorFacts(name, (), rest=InputRole.KEPT, aliases=tuple(aliases), never_in_inference=reason)
    for reason, text in _NAMES.items()
    for name, *aliases in (names.split("=") for names in text.split())
)

FAMILIES = (
    # MXNet names the gradient of `x` so, operators of libraries that users load included. Three are named the
    # other way round.
    OperatorFamily(
        r"(_contrib|_npi)?_backward_.+|_broadcast_backward|_split_v2_backward|_npi_hsplit_backward", _GRADIENT
    ),
)
