/*!
 * MXNet operators of mxamp, for mx.library.load.
 *
 * _mxamp_round(data, format, overflow=inf)
 *     float32 -> float32. Rounds to the values of `format` (kernels.h). Its gradient is straight-through: the
 *     gradient of the output, unchanged.
 *
 * _mxamp_round_both_ways(data, format, overflow=inf)
 *     The same for graphs, as a node with a subgraph: an identity of its one input. MXNet infers the shapes of such a
 *     node through its subgraph, from what it reads and from what reads it, with sizes that are known in part. Any
 *     other operator of a library is told of its inputs alone, and must know their sizes.
 *
 * _mxamp_observe(data)
 *     float32 -> (float32, float64). Output 0 is the data. Output 1 has kObservationLength numbers: count, nan, inf,
 *     zero, minimum, maximum, largest, smallest_nonzero, then the 256 counts of exponents, as in mxamp_observation.
 *     It is float64 because float32 counts exactly only to 2^24. Its gradient is that of output 0, unchanged.
 *
 * mxamp/ops/reference.py has the NumPy twin of each.
 *
 * What MXNet 1.9.1's interface to libraries does not offer, and what follows:
 * - It does not say whether a gradient is to be written or added, so gradients are always written. See
 *   mxamp/runtime/library.py.
 * - It has no bfloat16.
 * - It offers GPU memory only to libraries compiled with CUDA. The operators are registered for GPUs all the same, to
 *   say that they run on the CPU.
 */

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels.h"

#if defined(__GLIBCXX__)
namespace std {
// The headers of GCC 11 and newer call this, and only the libraries since then have it. With one of its own a wheel
// that was built there loads on older systems, too.
[[noreturn]] void __throw_bad_array_new_length() { throw bad_array_new_length(); }
}  // namespace std
#endif

// lib_api.cc keeps the messages of all errors of the process in one unguarded list, and MXNet shows the whole list with
// every later error. Its two accessors get other names here, and those at the end of this file, which know one message
// a thread, take their place.
#define _msgSize mxamp_all_messages_size
#define _msgGet mxamp_all_messages_get
#pragma GCC visibility push(default)  // MXNet looks its functions up by name
#include <lib_api.cc>
#pragma GCC visibility pop
#undef _msgSize
#undef _msgGet

#ifndef MXAMP_MXNET_VERSION
#define MXAMP_MXNET_VERSION 0  // unknown: the build did not say
#endif

namespace {

using mxnet::ext::MX_FAIL;
using mxnet::ext::MX_SUCCESS;
using mxnet::ext::MXReturnValue;
using mxnet::ext::MXTensor;
using mxnet::ext::OpResource;

using Attributes = std::unordered_map<std::string, std::string>;
using Shapes = std::vector<std::vector<unsigned int>>;

constexpr size_t kExponents = 256;
constexpr size_t kObservationLength = 8 + kExponents;

/*! Why the last call of this thread failed; empty when it did not. */
thread_local std::string failure;

MXReturnValue Succeed() {
  failure.clear();
  return MX_SUCCESS;
}

MXReturnValue Fail(const std::string& message) {
  failure = message;
  return MX_FAIL;
}

struct Named {
  const char* name;
  int code;
};

constexpr Named kFormats[] = {{"float16", MXAMP_FLOAT16},
                              {"bfloat16", MXAMP_BFLOAT16},
                              {"tfloat32", MXAMP_TFLOAT32},
                              {"float8_e4m3fn", MXAMP_FLOAT8_E4M3FN},
                              {"float8_e5m2", MXAMP_FLOAT8_E5M2}};
constexpr Named kOverflows[] = {{"inf", MXAMP_OVERFLOW_INF}, {"saturate", MXAMP_OVERFLOW_SATURATE}};

template <size_t count>
const Named* Find(const Named (&choices)[count], const std::string& name) {
  const Named* found =
      std::find_if(choices, choices + count, [&](const Named& choice) { return name == choice.name; });
  return found == choices + count ? nullptr : found;
}

template <size_t count>
std::string List(const Named (&choices)[count]) {
  std::string text;
  for (const Named& choice : choices) text += (text.empty() ? "" : ", ") + std::string(choice.name);
  return text;
}

/*! Attributes that MXNet and its users hang on any node, such as __shape__. */
bool IsAnnotation(const std::string& key) {
  return key.size() > 4 && key.compare(0, 2, "__") == 0 && key.compare(key.size() - 2, 2, "__") == 0;
}

// ---------------------------------------------------------------------------------------------------------------------
// What both operators share: one dense float32 input, an output like it, a gradient that passes.

template <const char* op>
MXReturnValue InferType(const Attributes&, std::vector<int>* in, std::vector<int>* out) {
  if (in->at(0) != -1 && in->at(0) != mxnet::ext::kFloat32) {
    return Fail(std::string(op) + " takes float32 only, and its data is of the dtype with code " +
                std::to_string(in->at(0)) + ". Cast it to float32 first.");
  }
  in->at(0) = mxnet::ext::kFloat32;
  out->at(0) = mxnet::ext::kFloat32;
  if (out->size() > 1) out->at(1) = mxnet::ext::kFloat64;
  return Succeed();
}

template <const char* op>
MXReturnValue InferStorage(const Attributes&, std::vector<int>* in, std::vector<int>* out) {
  for (int& storage : *in) {
    if (storage == mxnet::ext::kRowSparseStorage || storage == mxnet::ext::kCSRStorage) {
      return Fail(std::string(op) + " takes dense arrays only, and got one with " +
                  (storage == mxnet::ext::kCSRStorage ? "csr" : "row_sparse") +
                  " storage. Make it dense first: tostype('default') of an array, cast_storage(stype='default') in a "
                  "graph.");
    }
    storage = mxnet::ext::kDefaultStorage;
  }
  std::fill(out->begin(), out->end(), static_cast<int>(mxnet::ext::kDefaultStorage));
  return Succeed();
}

template <const char* op>
MXReturnValue InferShape(const Attributes&, Shapes* in, Shapes* out) {
  // A size that is not known yet is -1 in MXNet, which comes here unsigned and would go back as a size of 2^32 - 1.
  for (unsigned int size : in->at(0)) {
    if (size > 0x7FFFFFFFu) {
      return Fail(std::string(op) +
                  " needs a data shape that is fully known, and MXNet knows only part of it here. Give the shapes of "
                  "the inputs it depends on.");
    }
  }
  out->at(0) = in->at(0);
  if (out->size() > 1) out->at(1) = {static_cast<unsigned int>(kObservationLength)};
  return Succeed();
}

template <const char* op>
MXReturnValue RefuseGpu(const Attributes&, std::vector<MXTensor>*, std::vector<MXTensor>*, const OpResource&) {
  return Fail(std::string(op) + " runs on the CPU only. Bind the graph to mx.cpu().");
}

/*! Inputs: the gradients of all outputs, then the inputs and the outputs of forward. */
MXReturnValue PassGradient(const Attributes&, std::vector<MXTensor>* in, std::vector<MXTensor>* out,
                           const OpResource&) {
  const float* from = in->at(0).data<float>();
  float* to = out->at(0).data<float>();
  // Where several inputs are in oneDNN's layout, MXNet 1.9.1 gives dangling pointers to their shapes, not the outputs'.
  if (from != to) std::memcpy(to, from, static_cast<size_t>(out->at(0).size()) * sizeof(float));
  return Succeed();
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr char kRound[] = "_mxamp_round";
constexpr char kRoundBothWays[] = "_mxamp_round_both_ways";

struct Rounding {
  int format;
  int overflow;
};

MXReturnValue ReadRounding(const Attributes& attributes, Rounding* rounding) {
  const Named* format = nullptr;
  const Named* overflow = &kOverflows[0];
  for (const auto& attribute : attributes) {
    const std::string &key = attribute.first, &value = attribute.second;
    if (key == "format") {
      format = Find(kFormats, value);
      if (format == nullptr) {
        return Fail(std::string(kRound) + " has no format '" + value + "'. The formats are: " + List(kFormats) + ".");
      }
    } else if (key == "overflow") {
      overflow = Find(kOverflows, value);
      if (overflow == nullptr) {
        return Fail(std::string(kRound) + " has no overflow '" + value + "'. Use one of: " + List(kOverflows) + ".");
      }
    } else if (!IsAnnotation(key)) {
      return Fail(std::string(kRound) + " has no parameter '" + key + "'. Its parameters are: format, overflow.");
    }
  }
  if (format == nullptr) {
    return Fail(std::string(kRound) + " needs the parameter 'format', one of: " + List(kFormats) + ".");
  }
  *rounding = {format->code, overflow->code};
  return Succeed();
}

MXReturnValue ParseRound(const Attributes& attributes, int* inputs, int* outputs) {
  Rounding rounding;
  *inputs = 1;
  *outputs = 1;
  return ReadRounding(attributes, &rounding);
}

MXReturnValue Round(const Attributes& attributes, std::vector<MXTensor>* in, std::vector<MXTensor>* out,
                    const OpResource&) {
  Rounding rounding;
  if (ReadRounding(attributes, &rounding) != MX_SUCCESS) return MX_FAIL;
  mxamp_round(in->at(0).data<float>(), out->at(0).data<float>(), static_cast<size_t>(out->at(0).size()),
              rounding.format, rounding.overflow, 0);
  return Succeed();
}

REGISTER_OP(_mxamp_round)
    .setForward(Round, "cpu")
    .setForward(RefuseGpu<kRound>, "gpu")
    .setBackward(PassGradient, "cpu")
    .setBackward(RefuseGpu<kRound>, "gpu")
    .setParseAttrs(ParseRound)
    .setInferType(InferType<kRound>)
    .setInferSType(InferStorage<kRound>)
    .setInferShape(InferShape<kRound>);

/*! Bytes of an integer dtype's value; 0 for other dtypes. */
size_t IntegerSize(int dtype) {
  switch (dtype) {
    case mxnet::ext::kUint8:
    case mxnet::ext::kInt8:
      return 1;
    case mxnet::ext::kInt32:
      return 4;
    case mxnet::ext::kInt64:
      return 8;
    default:
      return 0;
  }
}

/*! One node's rounding: an operator with a subgraph must have a state. */
class StatefulRound : public mxnet::ext::CustomStatefulOp {
 public:
  explicit StatefulRound(Rounding rounding) : rounding_(rounding) {}

  MXReturnValue Forward(std::vector<MXTensor>* in, std::vector<MXTensor>* out, const OpResource&) override {
    const size_t integer = IntegerSize(in->at(0).dtype);
    if (in->at(0).dtype != mxnet::ext::kFloat32 && integer == 0) {
      return Fail(std::string(kRoundBothWays) + " takes float32 only, and its data is of the dtype with code " +
                  std::to_string(in->at(0).dtype) + ". Cast it to float32 first.");
    }
    if (in->at(0).stype != mxnet::ext::kDefaultStorage || out->at(0).stype != mxnet::ext::kDefaultStorage) {
      return Fail(std::string(kRoundBothWays) +
                  " takes dense arrays only. Make a sparse one dense first: cast_storage(stype='default') in a graph.");
    }
    if (in->at(0).size() != out->at(0).size()) {
      return Fail(std::string(kRoundBothWays) + " has a subgraph that is no identity: it makes " +
                  std::to_string(out->at(0).size()) + " values of " + std::to_string(in->at(0).size()) + ".");
    }
    const size_t count = static_cast<size_t>(out->at(0).size());
    if (integer != 0) {
      // As in amp_cast: what an input that says nothing of its dtype is fed with may turn out to be integers.
      if (count != 0) std::memcpy(out->at(0).data_ptr, in->at(0).data_ptr, count * integer);
      return Succeed();
    }
    mxamp_round(in->at(0).data<float>(), out->at(0).data<float>(), count, rounding_.format, rounding_.overflow, 0);
    return Succeed();
  }

  MXReturnValue Backward(std::vector<MXTensor>* in, std::vector<MXTensor>* out, const OpResource& resource) override {
    return PassGradient(Attributes(), in, out, resource);
  }

 private:
  Rounding rounding_;
};

MXReturnValue CreateRound(const Attributes& attributes, const mxnet::ext::MXContext&, const Shapes&,
                          const std::vector<int>, mxnet::ext::CustomStatefulOp** op) {
  Attributes own = attributes;
  own.erase(MX_STR_SUBGRAPH_SYM_JSON);  // MXNet adds the subgraph to what the node has
  Rounding rounding;
  if (ReadRounding(own, &rounding) != MX_SUCCESS) return MX_FAIL;
  *op = mxnet::ext::CustomStatefulOp::create<StatefulRound>(rounding);
  return Succeed();
}

MXReturnValue RefuseGpuState(const Attributes&, const mxnet::ext::MXContext&, const Shapes&, const std::vector<int>,
                             mxnet::ext::CustomStatefulOp**) {
  return Fail(std::string(kRoundBothWays) + " runs on the CPU only. Bind the graph to mx.cpu().");
}

REGISTER_OP(_mxamp_round_both_ways)
    .setIsSubgraphOp()
    .setCreateOpState(CreateRound, "cpu")
    .setCreateOpState(RefuseGpuState, "gpu");

// ---------------------------------------------------------------------------------------------------------------------

constexpr char kObserve[] = "_mxamp_observe";

MXReturnValue ParseObserve(const Attributes& attributes, int* inputs, int* outputs) {
  *inputs = 1;
  *outputs = 2;
  for (const auto& attribute : attributes) {
    if (!IsAnnotation(attribute.first)) {
      return Fail(std::string(kObserve) + " has no parameters, and was given '" + attribute.first + "'.");
    }
  }
  return Succeed();
}

MXReturnValue Observe(const Attributes&, std::vector<MXTensor>* in, std::vector<MXTensor>* out, const OpResource&) {
  mxamp_observation seen;
  mxamp_observe(in->at(0).data<float>(), out->at(0).data<float>(), static_cast<size_t>(out->at(0).size()), &seen, 0);
  const double numbers[] = {static_cast<double>(seen.count), static_cast<double>(seen.nan),
                            static_cast<double>(seen.inf),   static_cast<double>(seen.zero),
                            seen.minimum,                    seen.maximum,
                            seen.largest,                    seen.smallest_nonzero};
  double* numbers_end = std::copy(std::begin(numbers), std::end(numbers), out->at(1).data<double>());
  std::copy(std::begin(seen.exponents), std::end(seen.exponents), numbers_end);
  return Succeed();
}

REGISTER_OP(_mxamp_observe)
    .setForward(Observe, "cpu")
    .setForward(RefuseGpu<kObserve>, "gpu")
    .setBackward(PassGradient, "cpu")
    .setBackward(RefuseGpu<kObserve>, "gpu")
    .setParseAttrs(ParseObserve)
    .setInferType(InferType<kObserve>)
    .setInferSType(InferStorage<kObserve>)
    .setInferShape(InferShape<kObserve>);

}  // namespace

#pragma GCC visibility push(default)

extern "C" {

/*! How many messages MXNet shows with an error: it asks after each call, in the thread that made it. */
MX_INT_RET _msgSize() { return failure.empty() ? 0 : 1; }

MX_VOID_RET _msgGet(int, const char** message) { *message = failure.c_str(); }
}

namespace {

/*! "1.9.1" for 10901. */
std::string VersionName(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

/*! MXNet asks once, when it loads the library, with its version as major * 10000 + minor * 100 + patch. */
mxnet::ext::MXReturnValue initialize(int version) {
  if (MXAMP_MXNET_VERSION != 0 && version != MXAMP_MXNET_VERSION) {
    return Fail("It was built for MXNet " + VersionName(MXAMP_MXNET_VERSION) + ", and this is MXNet " +
                VersionName(version) + ".");
  }
  return Succeed();
}

#pragma GCC visibility pop
