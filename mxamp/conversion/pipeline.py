"""The whole conversion: its steps in their order, and why each stands where it does."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Callable, NamedTuple, Sequence

from mxamp.conversion.options import Options
from mxamp.conversion.plan import Decide, largest_values
from mxamp.errors import PolicyError, nearest_names
from mxamp.messages.arguments import items
from mxamp.passes import (
    ActivationsApart,
    BlocksForPooling,
    ConvolveBatchNorm,
    DropKnownChoices,
    DropNeedlessCasts,
    DropNoOps,
    EvenChannels,
    ExplicitPadding,
    FoldBatchNorm,
    FoldBias,
    FoldConstants,
    FoldPadding,
    FoldScale,
    InsertCasts,
    KeepBranches,
    KeepOrder,
    KeepPlannedBranches,
    KeepReferences,
    MergeCommonSubexpressions,
    MoveFewAxes,
    MoveTransposes,
    OneSpelling,
    PadChannels,
    Pass,
    PlainConcat,
    PlainForLowPooling,
    PlainForPooling,
    PlainSoftmax,
    PlainSums,
    PlannedPass,
    PreparationPass,
    RescaleOverflows,
    RewriteActivations,
    RewriteBestBoxes,
    RewriteBilinearResize,
    RewriteBilinearUpsampling,
    RewriteBounds,
    RewriteColumns,
    RewriteDenseConvolution,
    RewriteDenseLayer,
    RewriteDepthwiseSequences,
    RewriteFullWidth,
    RewriteGelu,
    RewriteGlobalPooling,
    RewriteGroupNorm,
    RewriteHardSigmoid,
    RewriteHardSwish,
    RewriteInstanceNorm,
    RewriteLastAxisConcat,
    RewriteLastAxisNorm,
    RewriteLastAxisSoftmax,
    RewriteLastAxisSplit,
    RewriteLastAxisSum,
    RewriteLayerNorm,
    RewriteLeakyReLU,
    RewriteMasks,
    RewriteNearestUpsampling,
    RewritePixelShuffle,
    RewritePReLU,
    RewriteRelu,
    RewriteScaleAndShift,
    RewriteSecondAxisMax,
    RewriteSecondAxisSum,
    RewriteSequencePooling,
    RewriteShortSums,
    RewriteSummedProducts,
    SeparateDeconvolutionBias,
    SeparateDenseInput,
    SeparateFewChannels,
    SeparateParts,
    ShareLayout,
    SkippedPlaces,
    SliceChannels,
    SliceShortRows,
    State,
    StretchAxis,
    TakeRows,
    UnevenPadding,
    WidePooling,
    run_passes,
)


class Step(NamedTuple):
    """One step of a conversion.

    Attributes
    ----------
    make
        Makes the pass, as the options ask for it.
    when
        Whether it runs.
    prepare
        What the option ``prepare`` calls it; empty for what that does not pick.
    """

    make: Callable[[Options], Pass]
    when: Callable[[Options], bool]
    prepare: str = ""


def preparing(kind: type[PreparationPass]) -> Step:
    """Return the step of a pass that ``prepare`` picks."""

    def runs(options: Options) -> bool:
        # A pure policy asks what low precision does to the user's own nodes.
        return not options.policy.is_pure and options.prepares(kind.step) and kind().runs_for(options.target)

    return Step(lambda options: kind(), runs, kind.step)


def named_by_target(kind: type[PlannedPass], name: str = "") -> Step:
    """Return the step of a pass over a plan that runs for targets that name it, or another pass."""
    wanted = name or kind.step
    return Step(lambda o: kind(), lambda o: wanted in o.target.rewrites and not o.policy.is_pure)


PREPARING: tuple[Step, ...] = (
    # Nothing is decided yet, and every value is kept.
    preparing(DropNoOps),  # what does nothing hides duplicates,
    preparing(DropKnownChoices),
    preparing(MergeCommonSubexpressions),
    preparing(FoldConstants),  # once each; numbers among them have words of their own,
    preparing(OneSpelling),  # and several words for one thing hide duplicates as well,
    preparing(DropNoOps),  # and what does nothing in words of its own,
    preparing(MergeCommonSubexpressions),  # and a value that is computed twice hides patterns:
    preparing(RewriteGelu),  # of sums and products, before any of these is written otherwise,
    preparing(RewriteLayerNorm),
    preparing(RewriteSummedProducts),
    preparing(FoldConstants),  # of parameters,
    preparing(MoveTransposes),  # so that a layer and its bias, its norm and its activation meet
    preparing(RewriteLeakyReLU),  # of images, which are known where no transpose is between,
    preparing(OneSpelling),  # and so are sums of one shape
    preparing(RewriteDenseLayer),
    preparing(RewriteBilinearUpsampling),  # to a layer, into which is folded what is behind it
    preparing(RewriteInstanceNorm),  # to norms, to whose scale and activation the same goes
    preparing(RewriteGroupNorm),
    preparing(FoldConstants),  # what these made of their parameters
    preparing(FoldScale),
    preparing(FoldBias),
    preparing(FoldPadding),
    preparing(RewriteGlobalPooling),
    preparing(RewriteFullWidth),
    preparing(RewriteDepthwiseSequences),  # of sequences that images became, too
    preparing(RewriteColumns),
    preparing(RewriteShortSums),
    preparing(RewriteHardSigmoid),
    preparing(RewriteRelu),
    preparing(RewriteActivations),  # which carry padded channels on, as their operators do not
    preparing(RewriteScaleAndShift),  # of sums and products that are no part of a pattern
    preparing(RewriteBounds),  # of layers, behind the norms that these were
    preparing(RewriteNearestUpsampling),
    preparing(RewriteBilinearResize),
    preparing(RewriteLastAxisConcat),
    preparing(RewriteLastAxisSplit),
    preparing(RewriteLastAxisSum),
    preparing(RewriteSecondAxisSum),
    preparing(RewriteSecondAxisMax),
    preparing(RewriteLastAxisNorm),
    preparing(RewriteLastAxisSoftmax),
    preparing(RewritePixelShuffle),
    preparing(SliceChannels),  # before layers get whole blocks of filters
    preparing(MoveFewAxes),  # what no other form moved
    preparing(TakeRows),
    preparing(StretchAxis),
    preparing(RewriteBestBoxes),
    preparing(MergeCommonSubexpressions),  # What patterns made equal is merged as well.
    preparing(SeparateFewChannels),  # before layers that read few with others are told not to fill blocks
    preparing(PadChannels),  # which knows a layer's bias where it stands,
    preparing(UnevenPadding),
    preparing(ExplicitPadding),  # of layers with the channels that they have at last
    preparing(SkippedPlaces),
    preparing(SeparateDeconvolutionBias),
    preparing(RewritePReLU),
    preparing(RewriteHardSwish),
    preparing(RewriteDenseConvolution),  # of layers that no other form was found for
    preparing(ActivationsApart),
    preparing(WidePooling),
    preparing(RewriteSequencePooling),
    preparing(PlainForPooling),
    preparing(PlainConcat),
    preparing(PlainSums),
    preparing(PlainSoftmax),
    preparing(SliceShortRows),  # behind all that looks for slices along one axis
    preparing(ShareLayout),  # behind all that puts in readers of a convolution, or takes them away,
    preparing(SeparateDenseInput),
    preparing(KeepBranches),  # and last what MXNet's fusion makes of all these.
    # No value of a mask counts but that it is far below all others: the rules are to see one in range.
    Step(
        lambda o: RewriteMasks(), lambda o: o.rewrite_masks and not o.policy.is_pure and not o.stays_float32
    ),
    # What values would leave the range is known by a calibration, and of masks their old value.
    Step(
        lambda o: RescaleOverflows(partial(largest_values, o), o.headroom),
        lambda o: o.calibration is not None and not o.policy.is_pure and not o.stays_float32,
    ),
)

_FOLD_BATCH_NORM = Step(
    lambda o: FoldBatchNorm(o.target.fold_into, float32=o.leaves_parameters), lambda o: o.fold_batch_norm
)

PLANNING: tuple[Step, ...] = (
    # The only step that decides. It is done anew, with all behind it, where casts turn out to lose range.
    Step(Decide, lambda o: True),
    # Before casts are put in, so that a layer and its BatchNorm need none between them, and the product of
    # both is rounded once. A runtime that rounds parameters folds what is low by itself; of what it folds it
    # forgets that it is to stay FP32.
    _FOLD_BATCH_NORM,
    _FOLD_BATCH_NORM,  # and a norm behind a norm
    # What no layer took.
    Step(
        lambda o: ConvolveBatchNorm(),
        lambda o: o.fold_batch_norm and o.target.convolves_batch_norm and not o.policy.is_pure,
    ),
    # Behind folding, for a BatchNorm is not folded into a sum.
    named_by_target(SeparateParts),
    # Where casts will stand is known, and with them which tensors are plain.
    named_by_target(BlocksForPooling),
    # Which poolings are low is known.
    named_by_target(PlainForLowPooling, PlainForPooling.step),
    # Behind folding, which makes the weights that are rounded.
    named_by_target(EvenChannels),
    # What is only known to do nothing now that there is a plan.
    Step(lambda o: DropNeedlessCasts(), lambda o: o.prepares(DropNoOps.step) and not o.policy.is_pure),
    # And last what MXNet's fusion and its plan of memory make of all these, and of the casts.
    Step(lambda o: KeepOrder(), lambda o: True),
    Step(lambda o: KeepPlannedBranches(o.cast_op), lambda o: True),
    Step(lambda o: KeepReferences(o.cast_op), lambda o: True),
)

CASTING: tuple[Step, ...] = (
    # Carries the plan out, while the parameters are being cast as it says.
    Step(lambda o: InsertCasts(o.cast_op), lambda o: True),
)

PREPARATIONS = tuple(dict.fromkeys(step.prepare for step in PREPARING if step.prepare))
"""The names of the passes that ``prepare`` picks, in the order in which they run."""


def run_steps(steps: Sequence[Step], state: State, options: Options) -> State:
    """Run the steps that the options ask for.

    Raises
    ------
    PassError
        When a pass breaks the graph, or its own promise.
    """
    passes = [step.make(options) for step in steps if step.when(options)]
    keeps = any(isinstance(each, PreparationPass) and each.keeps_branches for each in passes)
    return run_passes(passes, replace(state, keeps_branches=keeps))


def check_prepare(given: Any) -> tuple[str, ...]:
    """Return the passes asked for, in the order in which they run.

    Raises
    ------
    PolicyError
        When ``given`` is no sequence of their names.
    """
    known = list(dict.fromkeys(step.prepare for step in PREPARING if step.prepare))
    valid = ", ".join(repr(name) for name in known)
    names = items(given)
    if names is None or not all(isinstance(name, str) for name in names):
        raise PolicyError(
            f"prepare must be a list of passes, not {given!r}. Name those that shall run, of {valid}; [] for "
            "none."
        )
    for name in names:
        if name not in known:
            raise PolicyError(
                f"prepare holds {name!r}, which is no pass.{nearest_names(name, known)} "
                f"The passes are {valid}."
            )
    return tuple(name for name in known if name in names)
