// A prepared oneDNN primitive of source, weights, target, scratchpad and bias, and its arguments.
#pragma once

#include <array>
#include <dnnl.hpp>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/onednn/engine.h"

namespace onnxd::onednn {

struct Primitive {
  dnnl::primitive handle;
  dnnl::memory::desc source, target, scratchpad, bias;
  dnnl::memory weights;

  // Of the scratchpad, rounded up so that several follow each other aligned.
  size_t ScratchBytes() const { return (scratchpad.get_size() + 63) / 64 * 64; }
};

// The argument objects of one primitive for one run at a time.
class Arguments {
 public:
  explicit Arguments(const Primitive& primitive)
      : source_(primitive.source, Engine(), nullptr),
        target_(primitive.target, Engine(), nullptr),
        scratchpad_(primitive.scratchpad, Engine(), nullptr),
        bias_(primitive.bias, Engine(), nullptr),
        list_{{{DNNL_ARG_SRC, source_.get()},
               {DNNL_ARG_WEIGHTS, primitive.weights.get()},
               {DNNL_ARG_DST, target_.get()},
               {DNNL_ARG_SCRATCHPAD, scratchpad_.get()},
               {DNNL_ARG_BIAS, bias_.get()}}} {}

  // `bias` may be null. kInternal when oneDNN fails.
  Status Execute(const dnnl::primitive& handle, const void* source, const void* bias, void* target,
                 void* scratchpad) {
    dnnl_status_t status = dnnl_success;
    ONNXD_RETURN_IF_ERROR(Guard([&] {
      source_.set_data_handle(const_cast<void*>(source));
      target_.set_data_handle(target);
      scratchpad_.set_data_handle(scratchpad);
      if (bias != nullptr) bias_.set_data_handle(const_cast<void*>(bias));
      const int count = bias != nullptr ? 5 : 4;
      status = dnnl_primitive_execute(handle.get(), ThreadStream().get(), count, list_.data());
    }));
    if (status == dnnl_success) return Status::Ok();
    return Internal(StrCat("oneDNN: a primitive failed with status ", static_cast<int>(status)));
  }

 private:
  dnnl::memory source_, target_, scratchpad_, bias_;
  std::array<dnnl_exec_arg_t, 5> list_;
};

}  // namespace onnxd::onednn
