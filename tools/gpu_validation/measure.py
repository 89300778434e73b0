"""Measure the models of this folder: error and time of low precision against FP32, on this machine's GPU.

    python3 measure.py [NAME ...] [--rounds 10] [--seconds 0.5] [--runtime onnxruntime] [--device cpu]

It needs NumPy, and either ONNX Runtime, with its CUDA provider for a GPU, or PyTorch with onnx2torch; no
network. Without a GPU it runs on the CPU and says so: that tries the tool, and says nothing about GPUs.

Every model runs in FP32 without TF32, in FP32 with it, and in FP16 and BF16, by turns, so that a clock that
changes meets all of them; on a GPU also with channels last ("NHWC"), which its matrix units want. Times are
medians over the rounds, with the data on the device. Errors are relative L2 of the worst output against MXNet
in FP32 on a CPU, at batch 1. ONNX Runtime also says which nodes run on which of its providers. Of a detector
(marked "ranks") rows change places where scores nearly tie; its tensors before the ranking are a model of
their own.

It writes results.json, results.md and, where Matplotlib is there, results.png.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
TF32, NHWC = "TF32", "NHWC"
ONNXRUNTIME, PYTORCH = "onnxruntime", "pytorch"
CHANNELS_LAST = ("FP16 for CUDA",)
FORMAT = 2


class OnnxRuntime:
    """Runs files in ONNX Runtime, inputs and outputs on the device."""

    def __init__(self, device):
        import onnxruntime

        self.module = onnxruntime
        self.device = device
        self.versions = {"onnxruntime": onnxruntime.__version__}

    @staticmethod
    def has_gpu():
        """Whether it can use a GPU; None where it is not installed."""
        try:
            import onnxruntime
        except ImportError:
            return None
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            return False
        if hasattr(onnxruntime, "preload_dlls"):  # of CUDA and cuDNN, where they came as Python packages
            onnxruntime.preload_dlls()
        # A provider that is built in may still not load: CUDA or cuDNN of another version.
        return shutil.which("nvidia-smi") is not None

    def load(self, path, settings=()):
        """Return a file ready to run, with TF32 where that is among the settings, and channels last."""
        options = self.module.SessionOptions()
        options.log_severity_level = 3
        providers = ["CPUExecutionProvider"]
        if self.device == "cuda":
            chosen = {"use_tf32": str(int(TF32 in settings)), "prefer_nhwc": str(int(NHWC in settings))}
            providers.insert(0, ("CUDAExecutionProvider", chosen))
        session = self.module.InferenceSession(str(path), options, providers=providers)
        if self.device == "cuda" and session.get_providers()[0] != "CUDAExecutionProvider":
            raise RuntimeError("ONNX Runtime's CUDA provider does not load; see what it printed")
        return session

    def prepare(self, session, inputs):
        """Put inputs on the device; return what runs the model, and what runs it and returns its outputs."""
        binding = session.io_binding()
        kept = [
            self.module.OrtValue.ortvalue_from_numpy(inputs[i.name], self.device, 0)
            for i in session.get_inputs()
        ]
        for entry, value in zip(session.get_inputs(), kept):
            binding.bind_ortvalue_input(entry.name, value)
        for entry in session.get_outputs():
            binding.bind_output(entry.name, self.device)

        def run():
            session.run_with_iobinding(binding)
            binding.synchronize_outputs()

        def outputs():
            run()
            return [value.astype(np.float32) for value in binding.copy_outputs_to_cpu()]

        run.kept = kept
        return run, outputs

    def placement(self, path, inputs):
        """Return provider -> operator -> how many nodes it runs."""
        with tempfile.TemporaryDirectory() as folder:
            options = self.module.SessionOptions()
            options.log_severity_level = 3
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(folder, "profile"))
            providers = ["CUDAExecutionProvider"] if self.device == "cuda" else []
            session = self.module.InferenceSession(
                str(path), options, providers=[*providers, "CPUExecutionProvider"]
            )
            session.run(None, {entry.name: inputs[entry.name] for entry in session.get_inputs()})
            events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        found = {}
        for event in events:
            if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
                operators = found.setdefault(event["args"]["provider"], {})
                name = event["args"]["op_name"]
                operators[name] = operators.get(name, 0) + 1
        return found


class PyTorch:
    """Runs files in PyTorch, through onnx2torch."""

    def __init__(self, device):
        import onnx
        import onnx2torch
        import torch

        self.torch, self.onnx, self.onnx2torch, self.device = torch, onnx, onnx2torch, device
        self.versions = {"torch": torch.__version__, "CUDA of torch": str(torch.version.cuda)}

    @staticmethod
    def has_gpu():
        """Whether it can use a GPU; None where it is not installed."""
        try:
            import onnx2torch
            import torch
        except (ImportError, RuntimeError):  # torchvision of another build than torch raises the second
            return None
        return bool(onnx2torch) and torch.cuda.is_available()

    def load(self, path, settings=()):
        """Return a file ready to run, with TF32 where that is among the settings, and channels last."""
        model = self.onnx.load(str(path))
        network = self.onnx2torch.convert(model).eval().to(self.device)
        network.mxamp_inputs = [value.name for value in model.graph.input]
        if NHWC in settings:
            network = network.to(memory_format=self.torch.channels_last)
        network.mxamp_tf32 = TF32 in settings
        return network

    def prepare(self, network, inputs):
        """Put inputs on the device; return what runs the model, and what runs it and returns its outputs."""
        torch = self.torch
        tensors = [torch.from_numpy(inputs[name]).to(self.device) for name in network.mxamp_inputs]

        def run():
            torch.backends.cuda.matmul.allow_tf32 = network.mxamp_tf32
            torch.backends.cudnn.allow_tf32 = network.mxamp_tf32
            with torch.no_grad():
                found = network(*tensors)
            if self.device == "cuda":
                torch.cuda.synchronize()
            return found

        def outputs():
            found = run()
            found = found if isinstance(found, (tuple, list)) else [found]
            return [output.float().cpu().numpy() for output in found]

        return run, outputs

    @staticmethod
    def placement(path, inputs):
        """Return nothing: everything is where its data are."""
        del path, inputs
        return None


RUNTIMES = {ONNXRUNTIME: OnnxRuntime, PYTORCH: PyTorch}


def choose(runtime, device):
    """Return a runtime: the one asked for, or the first with a GPU, or the first that is there."""
    names = [runtime] if runtime else list(RUNTIMES)
    there = {name: RUNTIMES[name].has_gpu() for name in names}
    there = {name: gpu for name, gpu in there.items() if gpu is not None}
    if not there:
        sys.exit("Neither ONNX Runtime nor PyTorch with onnx2torch can be imported: install one of them.")
    with_gpu = [name for name, gpu in there.items() if gpu]
    if device == "cuda" and not with_gpu:
        sys.exit("No runtime here sees a GPU. Install onnxruntime-gpu, or PyTorch for CUDA with onnx2torch.")
    if device is None:
        device = "cuda" if with_gpu else "cpu"
    name = (with_gpu if device == "cuda" else list(there))[0]
    return name, RUNTIMES[name](device)


def relative_error(found, expected):
    """Return the norm of the difference over that of the reference."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    if found.shape != expected.shape:
        return float("inf")
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    size = np.linalg.norm(np.where(np.isfinite(expected), expected, 0.0))
    distance = np.linalg.norm(np.where(same, 0.0, found - expected))
    return float(distance / size if size else distance)


def arrays(path):
    """Return the arrays of a file in order."""
    with np.load(path) as file:
        return [file[f"arr_{number}"] for number in range(len(file.files))]


def measure(model, runtime, rounds, seconds):
    """Return errors and times of all variants of a model, by batch."""
    with np.load(HERE / model["folder"] / "data.npz") as file:
        data = dict(file)
    reference = arrays(HERE / model["folder"] / "reference.npz")
    found = []
    for batch in model["batches"]:
        inputs = {name: np.concatenate([values] * batch) for name, values in data.items()}
        prepared, row = {}, {"batch": batch, "variants": {}}
        wanted = [(variant, ()) for variant in model["variants"]]
        if runtime.device == "cuda":
            wanted[1:1] = [("FP32", (TF32,)), ("FP32", (TF32, NHWC))]
            wanted += [(variant, (NHWC,)) for variant in CHANNELS_LAST if variant in model["variants"]]
        for variant, settings in wanted:
            files = model["variants"][variant]
            if str(batch) not in files:
                continue
            row["variants"][", ".join((variant, *settings))] = entry = {}
            try:
                run, outputs = runtime.prepare(runtime.load(HERE / files[str(batch)], settings), inputs)
                results = outputs()
                if batch == 1:
                    if not settings:
                        entry["placement"] = runtime.placement(HERE / files["1"], inputs)
                    entry["error"] = max(relative_error(*pair) for pair in zip(results, reference))
                entry["finite"] = all(bool(np.isfinite(values).all()) for values in results)
                prepared[", ".join((variant, *settings))] = run
            except Exception as problem:  # whatever a runtime raises is a result
                entry["problem"] = " ".join(str(problem).split())[:300] or type(problem).__name__
        times = turns(prepared, rounds, seconds)
        for variant, each in times.items():
            row["variants"][variant].update(milliseconds=statistics.median(each), rounds=each)
        found.append(row)
    return found


def turns(prepared, rounds, seconds):
    """Return milliseconds of every round of every variant, which take turns."""
    counts = {}
    for name, run in prepared.items():
        run()
        began = time.perf_counter()
        run()
        counts[name] = max(1, int(seconds / max(1e-6, time.perf_counter() - began)))
    times = {name: [] for name in prepared}
    for _ in range(rounds):
        for name, run in prepared.items():
            began = time.perf_counter()
            for _ in range(counts[name]):
                run()
            times[name].append(1000 * (time.perf_counter() - began) / counts[name])
    return times


def machine():
    """Return the device, its driver, and what runs on it."""
    found = {
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
        "numpy": np.__version__,
    }
    query = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total,compute_cap",
        "--format=csv,noheader",
    ]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30).stdout
        found["gpu"] = said.strip().splitlines()[0]
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                found["cpu"] = line.partition(":")[2].strip()
                break
    return found


def markdown(results):
    """Return the results as text."""
    about = results["machine"]
    where = (
        about.get("gpu", "NO GPU")
        if results["device"] == "cuda"
        else f"NO GPU: on the CPU, {about.get('cpu', '')}"
    )
    lines = [
        f"# FP16 against FP32: {where}",
        "",
        ", ".join(f"{key} {value}" for key, value in {**about, **results["versions"]}.items()) + ".",
        f"Runtime: {results['runtime']} on {results['device']}; {results['rounds']} rounds by turns.",
        "Random weights. Error: relative L2 of the worst output against MXNet in FP32 on a CPU (and what",
        "emulation said). Nodes of ONNX Runtime: all, casts among them, and those that run on the CPU.",
        "",
        "| Model | batch | variant | ms | FP32's time over it | error | nodes |",
        "|---|---|---|---|---|---|---|",
    ]
    for model in results["models"]:
        for row in model["rows"]:
            base = row["variants"].get("FP32", {}).get("milliseconds")
            for variant, entry in row["variants"].items():
                if "problem" in entry:
                    lines.append(
                        f"| {model['name']} | {row['batch']} | {variant} | {entry['problem']} | | | |"
                    )
                    continue
                took = entry["milliseconds"]
                error = f"{entry['error']:.1e}" if "error" in entry else ""
                if error and variant in model["emulated_error"]:
                    error += f" ({model['emulated_error'][variant]:.1e})"
                error += " ranks" if error and model["ranks"] else ""
                error += "" if entry["finite"] else " NOT FINITE"
                faster = f"{base / took:.2f}" if base else ""
                nodes = nodes_of(entry.get("placement"))
                which = f"| {model['name']} | {row['batch']} | {variant} "
                lines.append(f"{which}| {took:.3f} | {faster} | {error} | {nodes} |")
    return "\n".join(lines) + "\n"


def nodes_of(placement):
    """Return how many nodes there are, how many casts, and what runs on the CPU."""
    if not placement:
        return ""
    total = sum(sum(operators.values()) for operators in placement.values())
    casts = sum(operators.get("Cast", 0) for operators in placement.values())
    on_cpu = placement.get("CPUExecutionProvider", {}) if "CUDAExecutionProvider" in placement else {}
    said = f"{total}, {casts} casts"
    if on_cpu:
        said += ", on the CPU: " + ", ".join(f"{number} {name}" for name, number in sorted(on_cpu.items()))
    return said


def plot(results, path):
    """Draw how many times as fast as FP32 each variant is; False where Matplotlib is not there."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        return False
    bars = {}
    for model in results["models"]:
        for row in model["rows"]:
            base = row["variants"].get("FP32", {}).get("milliseconds")
            for variant, entry in row["variants"].items():
                if base and "milliseconds" in entry:
                    label = f"{model['name']}, batch {row['batch']}"
                    bars.setdefault(label, {})[variant] = base / entry["milliseconds"]
    variants = list(dict.fromkeys(variant for each in bars.values() for variant in each))
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.25 * len(bars) * max(1, len(variants))))
    height = 0.8 / max(1, len(variants))
    for number, variant in enumerate(variants):
        places = [row + number * height for row, each in enumerate(bars.values()) if variant in each]
        axes.barh(places, [each[variant] for each in bars.values() if variant in each], height, label=variant)
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(bars))], list(bars), fontsize=7)
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.5)
    where = results["machine"].get("gpu", "no GPU") if results["device"] == "cuda" else "CPU, no GPU"
    axes.set_xlabel(f"times as fast as FP32 ({where}; {results['runtime']})")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    return True


def main(arguments=None):
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all in the folder)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="default: 10")
    parser.add_argument(
        "--seconds", type=float, default=0.5, metavar="S", help="a round of a variant (default: 0.5)"
    )
    parser.add_argument("--runtime", choices=list(RUNTIMES), help="default: the first that has the GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), help="default: the GPU where there is one")
    options = parser.parse_args(arguments)
    manifest = json.loads((HERE / "manifest.json").read_text("utf-8"))
    if manifest["format"] != FORMAT:
        sys.exit(f"manifest.json is of format {manifest['format']}, and this measure.py reads {FORMAT}.")
    if not all(model["variants"] for model in manifest["models"]):
        sys.exit(
            "The folder has no ONNX files yet: make them with python3 -m tools.gpu_validation.fill FOLDER."
        )
    unknown = set(options.names) - {model["name"] for model in manifest["models"]}
    if unknown:
        sys.exit(f"The folder has no {', '.join(sorted(unknown))}.")
    name, runtime = choose(options.runtime, options.device)
    if runtime.device == "cpu":
        print("NO GPU: this runs on the CPU, tries the tool, and says nothing about GPUs.")
    results = {
        "machine": machine(),
        "versions": runtime.versions,
        "made_with": manifest["made_with"],
        "runtime": name,
        "device": runtime.device,
        "rounds": options.rounds,
        "models": [],
    }
    for model in manifest["models"]:
        if options.names and model["name"] not in options.names:
            continue
        rows = measure(model, runtime, options.rounds, options.seconds)
        results["models"].append(
            {**{key: model[key] for key in ("name", "emulated_error", "ranks")}, "rows": rows}
        )
        print(model["name"], flush=True)
        # After each, so that what was done is there when a run is cut off.
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    (HERE / "results.md").write_text(markdown(results), "utf-8")
    print(markdown(results))
    if not plot(results, HERE / "results.png"):
        print("Matplotlib is not here: no plot was drawn. results.json has all that it needs.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
