"""FP32 spreads as a region around indices and coordinates, and leaves features alone."""

from __future__ import annotations

import pytest

from mxamp.dtypes import DType
from mxamp.graph import Entry
from mxamp.policy import Color, Policy, Verdict
from tests.building import LOW, Net, colors, red

pytestmark = pytest.mark.parametrize("dtype", LOW, ids=str)


def region(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict.rule == "exact region"}


def halves(net: Net, entry: Entry, name: str) -> tuple[Entry, Entry]:
    split = net.op("SliceChannel", entry, name=name, outputs=2, num_outputs=2, axis=-1)
    return split, Entry(split.node, 1)


def ssd_head(net: Net, features: Entry) -> Entry:
    """Decode boxes around anchors as GluonCV's NormalizedBoxCenterDecoder does, then suppress."""
    loc = net.op("transpose", net.conv(features, "loc_conv"), name="loc_t", axes="(0, 2, 3, 1)")
    loc = net.op("Reshape", net.op("Flatten", loc, name="loc_flat"), name="loc", shape="(0, -1, 4)")
    centre, size = halves(net, loc, "loc_split")
    anchor_centre, anchor_size = halves(net, net.var("anchors"), "anchor_split")
    moved = net.op(
        "broadcast_mul", net.op("_mul_scalar", centre, name="std", scalar=0.1), anchor_size, name="mul"
    )
    centre = net.op("broadcast_add", moved, anchor_centre, name="add")
    half = net.op("broadcast_mul", net.op("exp", size, name="grow"), anchor_size, name="size")
    half = net.op("_mul_scalar", half, name="half", scalar=0.5)
    boxes = net.op(
        *("Concat", net.op("elemwise_sub", centre, half, name="low_corner")),
        *(net.op("elemwise_add", centre, half, name="high_corner"),),
        name="boxes",
        dim=-1,
    )
    scores = net.op("Reshape", net.conv(features, "cls_conv"), name="scores", shape="(0, -1, 1)")
    found = net.op("Concat", scores, boxes, name="found", dim=-1)
    return net.op("_contrib_box_nms", found, name="nms", outputs=2, overlap_thresh=0.45)


def test_ssd_decodes_and_suppresses_in_fp32_as_one_region(dtype: DType) -> None:
    net = Net()
    trunk = net.op("Activation", net.conv(net.var("data"), "trunk"), name="relu", act_type="relu")
    verdicts = colors(net.graph(ssd_head(net, trunk)), net.params, dtype)
    arithmetic = {"std", "mul", "add", "grow", "size", "half", "low_corner", "high_corner"}
    assert red(verdicts) >= arithmetic | {"boxes", "found", "nms", "anchor_split"}
    # What moves nothing but a convolution's output moves what is rounded already.
    assert not red(verdicts) & {"trunk", "relu", "loc_conv", "cls_conv", "loc_t", "loc_flat", "loc", "scores"}
    assert verdicts["trunk"].color is verdicts["loc_conv"].color is Color.GREEN


def test_yolo_grid_arithmetic_is_fp32(dtype: DType) -> None:
    net = Net()
    tip = net.op("LeakyReLU", net.conv(net.var("data"), "tip"), name="leaky", act_type="leaky")
    out = net.op("Reshape", net.conv(tip, "out"), name="out_reshape", shape="(0, 3, 4, -1)")
    raw_centre, raw_size = halves(net, out, "out_split")
    offsets = net.op("slice_like", net.var("offsets"), raw_centre, name="offsets_here")
    centre = net.op("broadcast_add", net.op("sigmoid", raw_centre, name="sig"), offsets, name="shift")
    centre = net.op("_mul_scalar", centre, name="stride", scalar=32)
    size = net.op("broadcast_mul", net.op("exp", raw_size, name="grow"), net.var("anchors"), name="scale")
    boxes = net.op("Concat", centre, size, name="boxes", dim=-1)
    verdicts = colors(net.graph(net.op("_contrib_box_nms", boxes, name="nms", outputs=2)), net.params, dtype)
    assert red(verdicts) >= {"sig", "shift", "stride", "grow", "scale", "boxes", "nms", "offsets_here"}
    assert not red(verdicts) & {"tip", "leaky", "out", "out_reshape", "out_split"}


def test_center_net_peaks_and_their_positions_are_fp32(dtype: DType) -> None:
    net = Net()
    trunk = net.op("Activation", net.conv(net.var("data"), "trunk"), name="relu", act_type="relu")
    heat = net.op("sigmoid", net.conv(trunk, "heat_conv"), name="heat")
    peak = net.op("Pooling", heat, name="peak", pool_type="max", kernel="(3, 3)", pad="(1, 1)")
    keep = net.op("broadcast_equal", heat, peak, name="keep")
    kept = net.op("Reshape", net.op("elemwise_mul", heat, keep, name="kept"), name="flat", shape="(0, -1)")
    top = net.op("topk", kept, name="top", outputs=2, k=100, ret_typ="both")
    index = Entry(top.node, 1)
    column = net.op("_mod_scalar", index, name="column", scalar=128)
    row = net.op("floor", net.op("_div_scalar", index, name="rows", scalar=128), name="row")
    where = net.op("stack", row, column, name="where", num_args=2)
    sizes = net.op("gather_nd", net.conv(trunk, "size_conv"), where, name="sizes")
    x = net.op("elemwise_add", column, net.op("squeeze", sizes, name="squeezed"), name="x")
    verdicts = colors(net.graph(top, x), net.params, dtype)
    assert red(verdicts) >= {"heat", "peak", "keep", "kept", "flat", "top"}
    assert red(verdicts) >= {"column", "row", "rows", "where", "x"}
    assert not red(verdicts) & {"trunk", "relu", "heat_conv", "size_conv", "sizes"}


def test_faster_rcnn_keeps_proposals_exact_and_pooled_features_free(dtype: DType) -> None:
    net = Net()
    features = net.op("Activation", net.conv(net.var("data"), "trunk"), name="relu", act_type="relu")
    deltas = net.op("Reshape", net.conv(features, "rpn"), name="deltas", shape="(0, -1, 4)")
    rois = net.op("_contrib_box_decode", deltas, net.var("anchors"), name="decode")
    rois = net.op("clip", rois, name="inside", a_min=0, a_max=800)
    rois = net.op("_contrib_box_nms", rois, name="nms", outputs=2)
    rois = net.op("slice_axis", rois, name="best", axis=1, begin=0, end=300)
    rois = net.op("_mul_scalar", rois, name="to_grid", scalar=0.0625)
    pooled = net.op("_contrib_ROIAlign", features, rois, name="align", pooled_size="(7, 7)", spatial_scale=1)
    top = net.fc(net.op("Flatten", pooled, name="flat"), "top")
    verdicts = colors(net.graph(top, rois), net.params, dtype)
    assert red(verdicts) == {"decode", "inside", "nms", "best", "to_grid", "align"}
    assert verdicts["rpn"].color is verdicts["top"].color is Color.GREEN


def test_danger_does_not_run_up_a_residual_trunk(dtype: DType) -> None:
    net = Net()
    trunk = net.conv(net.var("data"), "stem")
    for block in range(4):
        branch = net.bn(net.conv(trunk, f"conv_{block}"), f"bn_{block}")
        trunk = net.op("elemwise_add", branch, trunk, name=f"add_{block}")
        trunk = net.op("Activation", trunk, name=f"relu_{block}", act_type="relu")
    verdicts = colors(
        net.graph(net.op("topk", trunk, name="top", ret_typ="value", outputs=2)), net.params, dtype
    )
    assert red(verdicts) == {"top", "relu_3", "add_3", "bn_3"}


def test_features_that_a_convolution_reads_too_are_not_positions(dtype: DType) -> None:
    net = Net()
    features = net.op("Activation", net.conv(net.var("data"), "trunk"), name="relu", act_type="relu")
    verdicts = colors(
        net.graph(net.conv(features, "next"), net.op("argmax", features, name="best", axis=1)),
        net.params,
        dtype,
    )
    assert red(verdicts) == {"best"}


def test_indices_are_exact_even_where_a_layer_reads_them_as_features(dtype: DType) -> None:
    net = Net()
    position = net.op("_plus_scalar", net.var("x"), name="position", scalar=1)
    rows = net.op("take", net.var("table"), position, name="rows")
    verdicts = colors(net.graph(rows, net.fc(position, "fc")), net.params, dtype)
    assert red(verdicts) == {"position"}


def test_a_counter_that_looks_up_an_embedding_is_exact(dtype: DType) -> None:
    net = Net()
    count = net.op("_arange", name="count", start=0, stop=4096)
    shifted = net.op("_plus_scalar", count, name="shifted", scalar=2)
    rows = net.op(
        "Embedding", shifted, net.param("table", 5000, 4), name="rows", input_dim=5000, output_dim=4
    )
    verdicts = colors(net.graph(net.fc(rows, "fc")), net.params, dtype)
    assert {"shifted"} <= red(verdicts)
    assert not red(verdicts) & {"rows", "fc"}


def test_positions_added_to_features_stop_at_the_features(dtype: DType) -> None:
    net = Net()
    encoded = net.op("_mul_scalar", net.op("_arange", name="count", stop=4), name="encoded", scalar=0.01)
    summed = net.op("broadcast_add", net.fc(net.var("data"), "first"), encoded, name="summed")
    residual = net.op("elemwise_add", net.fc(summed, "second"), summed, name="residual")
    verdicts = colors(net.graph(net.op("_mul_scalar", residual, name="after", scalar=2)), net.params, dtype)
    assert red(verdicts) >= {"encoded", "summed"}
    assert not red(verdicts) & {"first", "second", "residual", "after"}


@pytest.mark.parametrize(("op", "attrs"), [("topk", {"k": "3"}), ("argsort", {}), ("argmax", {"axis": "1"})])
def test_ranks_are_exact_before_and_after(dtype: DType, op: str, attrs: dict[str, str]) -> None:
    net = Net()
    score = net.op("_mul_scalar", net.fc(net.var("data"), "fc"), name="score", scalar=3)
    rank = net.op(op, score, name="rank", **attrs)
    verdicts = colors(net.graph(net.op("_plus_scalar", rank, name="next", scalar=1)), net.params, dtype)
    assert red(verdicts) == {"score", "rank", "next"}


def test_values_of_topk_are_no_positions(dtype: DType) -> None:
    net = Net()
    values = net.op("topk", net.fc(net.var("data"), "fc"), name="top", ret_typ="value", outputs=2, k=2)
    verdicts = colors(net.graph(net.op("_plus_scalar", values, name="next", scalar=1)), net.params, dtype)
    assert red(verdicts) == {"top"}


def test_what_becomes_an_integer_is_exact(dtype: DType) -> None:
    net = Net()
    scaled = net.op("_mul_scalar", net.var("x"), name="scaled", scalar=100)
    whole = net.op("Cast", scaled, name="whole", dtype="int32")
    half = net.op(
        "Cast", net.op("_mul_scalar", net.var("y"), name="free", scalar=3), name="h", dtype="float16"
    )
    verdicts = colors(net.graph(whole, half), net.params, dtype)
    assert red(verdicts) == {"scaled"}


def test_lengths_are_exact_and_the_sequence_is_not(dtype: DType) -> None:
    net = Net()
    lengths = net.op("_minus_scalar", net.var("lengths"), name="shorter", scalar=1)
    masked = net.op(
        "SequenceMask", net.fc(net.var("data"), "fc"), lengths, name="mask", use_sequence_length=True
    )
    assert red(colors(net.graph(masked), net.params, dtype)) == {"shorter"}


def test_a_shape_reader_spreads_nothing(dtype: DType) -> None:
    net = Net()
    grid = net.op("_arange", name="grid", stop=100)
    like = net.op("_mul_scalar", net.fc(net.var("data"), "fc"), name="like", scalar=2)
    cut = net.op("slice_like", grid, like, name="cut")
    assert "like" not in red(colors(net.graph(cut, like), net.params, dtype))


def test_moves_in_front_of_indices_are_exact_unless_they_move_rounded_values(dtype: DType) -> None:
    net = Net()
    raw = net.op("Reshape", net.var("boxes"), name="raw", shape="(0, -1, 4)")
    rounded = net.op("Reshape", net.fc(net.var("data"), "fc"), name="rounded", shape="(0, -1, 4)")
    iou = net.op("_contrib_box_iou", raw, rounded, name="iou")
    assert red(colors(net.graph(iou), net.params, dtype)) == {"raw", "iou"}


def test_a_users_color_is_not_overridden_and_the_region_goes_on_behind_it(dtype: DType) -> None:
    net = Net()
    first = net.op("_mul_scalar", net.var("x"), name="first", scalar=2)
    middle = net.op("_plus_scalar", first, name="middle", scalar=1)
    nms = net.op("_contrib_box_nms", middle, name="nms", outputs=2)
    policy = Policy.default(dtype).with_color_function(lambda n: Color.GRAY if n.name == "middle" else None)
    assert red(colors(net.graph(nms), {}, dtype, policy)) == {"first", "nms"}


def test_the_reason_names_who_reads_or_makes_the_positions(dtype: DType) -> None:
    net = Net()
    before = net.op("_mul_scalar", net.var("x"), name="before", scalar=2)
    best = net.op("argmax", before, name="best", axis=1)
    after = net.op("_plus_scalar", best, name="after", scalar=1)
    verdicts = colors(net.graph(after), {}, dtype)
    assert verdicts["before"].reason == "'best' (argmax) puts its values in order"
    assert verdicts["after"].reason == "it computes with the positions that 'best' (argmax) produces"
    assert region(verdicts) == {"before", "after"}


@pytest.mark.parametrize("op", ["SpatialTransformer", "GridGenerator"])
@pytest.mark.parametrize("is_moved", [False, True])
def test_the_layer_that_computes_an_affine_transform_is_exact(dtype: DType, op: str, is_moved: bool) -> None:
    net = Net()
    data = net.var("data")
    hidden = net.fc(net.op("Flatten", net.conv(data, "trunk"), name="flat"), "hidden")
    theta = net.fc(hidden, "theta")
    if is_moved:
        theta = net.op("Reshape", theta, name="moved", shape="(-1, 6)")
    reads = (data, theta) if op == "SpatialTransformer" else (theta,)
    warped = net.op(op, *reads, name="warped", transform_type="affine", target_shape="(8, 8)")
    verdicts = colors(net.graph(warped), net.params, dtype)
    assert region(verdicts) == {"theta", "moved"} & set(verdicts)
    assert verdicts["theta"].reason == f"'warped' ({op}) multiplies positions by what it computes"
    assert (verdicts["hidden"].color, verdicts["trunk"].color) == (Color.GREEN, Color.GREEN)


def test_a_layer_that_computes_a_field_of_displacements_is_not(dtype: DType) -> None:
    net = Net()
    flow = net.conv(net.var("data"), "flow", 2)
    warped = net.op("GridGenerator", flow, name="warped", transform_type="warp")
    assert colors(net.graph(warped), net.params, dtype)["flow"].color is Color.GREEN


def test_a_long_chain_of_positions_needs_no_recursion(dtype: DType) -> None:
    net = Net()
    last = net.op("argmax", net.var("x"), axis=1)
    for _ in range(20_000):
        last = net.op("_plus_scalar", last, scalar=1)
    assert len(red(colors(net.graph(net.op("take", net.var("t"), last)), {}, dtype))) == 20_001
