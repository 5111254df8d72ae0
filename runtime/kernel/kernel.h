// The contract between the session and providers: what computes a node.
//
//   Kernel          made once per node when the model loads: attributes and packed weights, shared
//     Prepare       once per set of shapes: checks them, chooses code, states scratch and sharing
//   PreparedKernel  kept by the plan
//     compute       per run: loops over memory, nothing else
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/device.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// What is known of one operand when a kernel prepares.
struct OperandInfo {
  bool present = false;
  ValueType::Kind kind = ValueType::Kind::kUnknown;
  DataType type = DataType::kUndefined;
  const Shape* shape = nullptr;   // null: decided by the data, or not a tensor
  const Tensor* value = nullptr;  // the elements, when they are already known
  // In elements, one per axis, none negative: of an input that a kernel takes so (TakesStrides) and
  // that is not dense. Null: dense.
  const std::vector<int64_t>* strides = nullptr;
};

struct PrepareContext {
  const Node& node;
  std::span<const OperandInfo> inputs;   // one per node.inputs
  std::span<const OperandInfo> outputs;  // one per node.outputs, shapes from the schema's inference
  int threads = 1;                       // among which compute may split its work

  bool HasInput(size_t i) const { return i < inputs.size() && inputs[i].present; }
  bool HasOutput(size_t i) const { return i < outputs.size() && outputs[i].present; }
  const Shape& InputShape(size_t i) const { return *inputs[i].shape; }
  const Shape& OutputShape(size_t i) const { return *outputs[i].shape; }
};

// What a prepared kernel keeps for one run at a time, such as a library's argument objects. Made
// once per execution context and used again by every run of that context.
class KernelState {
 public:
  virtual ~KernelState() = default;
};

// The operands of one call. A dense tensor whose shape is planned is a pointer to its elements,
// 64-byte aligned; everything else (strings, sequences, maps, tensors whose shape the data decide)
// is a Value. Absent operands are null. A device's kernel finds operands and scratch on its device
// (but for Kernel::ReadsOnHost) and only enqueues on the stream.
class KernelContext {
 public:
  KernelContext(std::span<void* const> inputs, std::span<void* const> outputs, void* scratch,
                KernelState* state, ThreadPool* pool, Stream* stream = nullptr, uint32_t step = 0)
      : inputs_(inputs),
        outputs_(outputs),
        scratch_(scratch),
        state_(state),
        pool_(pool),
        stream_(stream),
        step_(step) {}

  // Null as well for operands beyond those that the node lists.
  template <typename T>
  const T* input(size_t i) const {
    return i < inputs_.size() ? static_cast<const T*>(inputs_[i]) : nullptr;
  }
  template <typename T>
  T* output(size_t i) const {
    return i < outputs_.size() ? static_cast<T*>(outputs_[i]) : nullptr;
  }
  const Value& input_value(size_t i) const { return *static_cast<const Value*>(inputs_[i]); }
  Value& output_value(size_t i) const { return *static_cast<Value*>(outputs_[i]); }
  template <typename T>
  T* scratch() const {
    return static_cast<T*>(scratch_);
  }
  // Requires T to be what make_state returns.
  template <typename T>
  T& state() const {
    return *static_cast<T*>(state_);
  }
  ThreadPool& pool() const { return *pool_; }
  // Of the kernel's device; requires one.
  Stream& stream() const { return *stream_; }
  // By which the stream's failure word names this call.
  uint32_t step() const { return step_; }

 private:
  std::span<void* const> inputs_;
  std::span<void* const> outputs_;
  void* scratch_;
  KernelState* state_;
  ThreadPool* pool_;
  Stream* stream_;
  uint32_t step_;
};

struct PreparedKernel {
  // Any thread, several at once with contexts of their own.
  std::function<Status(const KernelContext&)> compute;
  size_t scratch_bytes = 0;
  std::function<Result<std::unique_ptr<KernelState>>()> make_state;  // null: no state
  // {output, input}: the output's bytes are the input's, unchanged; compute need not touch them,
  // and is skipped when every output is such a view.
  std::vector<std::pair<int, int>> views;
  // {output, input}: compute may write the output over the input, which has the same byte size.
  std::vector<std::pair<int, int>> in_place;
  // Where compute may write an output over an input of the same byte size if it begins so many
  // bytes before it, a multiple of kTensorAlignment: what is read later is still there then.
  struct Slide {
    int output, input;
    size_t bytes;
  };
  std::vector<Slide> slides;
  // Where compute may write an output of the input's shape into the memory of the input so many bytes
  // behind where that begins; what lies behind the input's end is the output's, too.
  struct Shift {
    int output, input;
    size_t bytes;
  };
  std::vector<Shift> shifts;
  // Of a device's kernel that checks what it reads from data: what its code in the failure word
  // means. Null: it cannot fail there.
  std::function<Status(const DeviceFailure&)> on_failure;
};

// Immutable and shared between threads.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Requires the shapes of all dense inputs. kUnimplemented or kInvalidArgument say what is wrong
  // with these shapes; kFailedPrecondition that an input's value must be known and is not.
  virtual Result<PreparedKernel> Prepare(const PrepareContext& context) const = 0;

  // False when a constant input was packed into the kernel: the session then drops the original,
  // and the operand is null at run time.
  virtual bool ReadsInput(size_t) const { return true; }

  // Whether it reads this input at any strides (OperandInfo::strides). Prepare may say
  // kUnimplemented of such as do not suit it: then they come dense.
  virtual bool TakesStrides(size_t) const { return false; }

  // Of a device's kernel: whether it wants this input in the host's memory, such as the shape that
  // Reshape is given.
  virtual bool ReadsOnHost(size_t) const { return false; }
};

// What a factory sees: the node, static types of its operands, and constant inputs.
struct KernelInfo {
  const Node& node;
  std::span<const ValueType> input_types;
  std::span<const ValueType> output_types;
  // The initializer behind an input, or null. Factories that pack weights materialise it.
  std::function<const Initializer*(size_t)> constant_input;
  // The kernel is made only to see whether it can be: large constants need not be packed.
  bool only_asks = false;

  DataType InputType(size_t i) const {
    return i < input_types.size() ? input_types[i].element : DataType::kUndefined;
  }
  DataType OutputType(size_t i) const {
    return i < output_types.size() ? output_types[i].element : DataType::kUndefined;
  }
};

// Returns the kernel, or kUnimplemented with the reason why this provider declines the node.
using KernelFactory = Result<std::unique_ptr<Kernel>> (*)(const KernelInfo&);

// Some of a node's first 64 inputs.
class InputSet {
 public:
  InputSet(std::initializer_list<size_t> inputs = {}) {
    for (const size_t input : inputs) bits_ |= uint64_t{1} << input;
  }
  static InputSet All() {
    InputSet all;
    all.bits_ = ~uint64_t{0};
    return all;
  }
  bool Has(size_t input) const { return input < 64 && (bits_ >> input & 1) != 0; }

 private:
  uint64_t bits_ = 0;
};

// A Kernel whose Prepare is a function object; most kernels need no more. `at_strides`: the inputs
// that it takes so.
template <typename PrepareFunction>
std::unique_ptr<Kernel> MakeKernel(PrepareFunction prepare, InputSet at_strides = {}) {
  class FunctionKernel : public Kernel {
   public:
    FunctionKernel(PrepareFunction p, InputSet strides)
        : prepare_(std::move(p)), at_strides_(strides) {}
    Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
      return prepare_(context);
    }
    bool TakesStrides(size_t input) const override { return at_strides_.Has(input); }

   private:
    PrepareFunction prepare_;
    InputSet at_strides_;
  };
  return std::make_unique<FunctionKernel>(std::move(prepare), at_strides);
}

}  // namespace onnxd
