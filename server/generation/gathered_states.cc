#include "server/generation/gathered_states.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime/tensor/device_tensor.h"

namespace onnxd {
namespace {

using State = DecoderPlan::State;

// [blocks, rows, parts, tokens] of so many bytes each.
struct Layout {
  size_t blocks, rows, parts, tokens, bytes;

  size_t PlaceOf(size_t block, size_t row) const { return (block * rows + row) * parts * pitch(); }
  size_t pitch() const { return tokens * bytes; }
};

Layout LayoutOf(const State& state, const Shape& shape) {
  const auto count = [&](int begin, int end) {
    return static_cast<size_t>(shape.ElementCount(begin, end));
  };
  const bool grows = state.past_axis >= 0;
  const int last = grows ? state.past_axis : state.batch_axis;
  Layout layout{};
  layout.blocks = count(0, state.batch_axis);
  layout.rows = static_cast<size_t>(shape[state.batch_axis]);
  layout.parts = grows ? count(state.batch_axis + 1, last) : 1;
  layout.tokens = grows ? static_cast<size_t>(shape[last]) : 1;
  layout.bytes = count(last + 1, shape.rank()) * static_cast<size_t>(DataTypeBits(state.type)) / 8;
  return layout;
}

void CopyOnHost(const CopiedRows& rows) {
  auto* to = static_cast<std::byte*>(rows.to);
  const auto* from = static_cast<const std::byte*>(rows.from);
  for (size_t row = 0; row < rows.rows; ++row, to += rows.to_pitch, from += rows.from_pitch) {
    std::memcpy(to, from, rows.bytes);
  }
}

void ZeroOnHost(std::byte* to, size_t pitch, size_t bytes, size_t rows) {
  for (size_t row = 0; row < rows; ++row, to += pitch) std::memset(to, 0, bytes);
}

// Fills a tensor row by row.
class Gathering {
 public:
  // `stream`: null where the tensor is on the host.
  Gathering(const State& state, bool pads_before, Tensor& to, Stream* stream)
      : state_(state),
        pads_before_(pads_before),
        layout_(LayoutOf(state, to.shape())),
        to_(static_cast<std::byte*>(to.mutable_raw())),
        stream_(stream) {}

  Status Put(size_t row, const StateRow& source) {
    const Layout from = LayoutOf(state_, source.tensor.shape());
    const auto* const begin = static_cast<const std::byte*>(source.tensor.raw());
    const size_t length = state_.past_axis >= 0 ? static_cast<size_t>(source.length) : 1;
    const size_t own = length * layout_.bytes, gap = layout_.pitch() - own;
    for (size_t block = 0; block < layout_.blocks; ++block) {
      std::byte* const target = to_ + layout_.PlaceOf(block, row);
      const std::byte* const taken = begin + from.PlaceOf(block, static_cast<size_t>(source.row)) +
                                     (pads_before_ ? from.pitch() - own : 0);
      const CopiedRows copied{target + (pads_before_ ? gap : 0),
                              layout_.pitch(),
                              taken,
                              from.pitch(),
                              own,
                              layout_.parts};
      if (stream_ != nullptr) {
        ONNXD_RETURN_IF_ERROR(stream_->CopyRowsWithin(copied));
        continue;
      }
      CopyOnHost(copied);
      ZeroOnHost(target + (pads_before_ ? 0 : own), layout_.pitch(), gap, layout_.parts);
    }
    return Status::Ok();
  }

 private:
  const State& state_;
  const bool pads_before_;
  const Layout layout_;
  std::byte* const to_;
  Stream* const stream_;
};

Result<Tensor> GatherOn(Device& device, const State& state, std::span<const StateRow> sources,
                        const Shape& shape, bool pads_before) {
  ONNXD_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.MakeStream());
  ONNXD_ASSIGN_OR_RETURN(Tensor joined, Tensor::CreateOn(device, state.type, shape));
  const bool has_gaps = state.past_axis >= 0 &&
                        std::any_of(sources.begin(), sources.end(), [&](const StateRow& source) {
                          return source.length < shape[state.past_axis];
                        });
  if (has_gaps) ONNXD_RETURN_IF_ERROR(stream->Zero(joined.mutable_raw(), joined.bytes()));
  std::vector<StateRow> there(sources.begin(), sources.end());  // until all is copied
  Gathering gathering(state, pads_before, joined, stream.get());
  Status status = Status::Ok();
  for (size_t row = 0; row < there.size() && status.ok(); ++row) {
    Tensor& tensor = there[row].tensor;
    if (tensor.device() == nullptr) {
      auto brought = CopyToDevice(tensor, device, *stream);
      status = brought.status();
      if (brought.ok()) tensor = *std::move(brought);
    }
    if (status.ok()) status = gathering.Put(row, there[row]);
  }
  const Status ended = stream->Synchronize();
  ONNXD_RETURN_IF_ERROR(status);
  ONNXD_RETURN_IF_ERROR(ended);
  return joined;
}

}  // namespace

Shape ShapeOfState(const State& state, int64_t rows, int64_t past) {
  Shape shape;
  for (int axis = 0; axis < static_cast<int>(state.shape.size()); ++axis) {
    shape.Append(axis == state.batch_axis  ? rows
                 : axis == state.past_axis ? past
                                           : state.shape[static_cast<size_t>(axis)].value);
  }
  return shape;
}

Result<Tensor> GatherStates(const State& state, std::span<const StateRow> sources, int64_t past,
                            bool pads_before, const TensorMaker& make) {
  const Shape shape = ShapeOfState(state, static_cast<int64_t>(sources.size()), past);
  for (const StateRow& source : sources) {
    Device* const device = source.tensor.device();
    if (device != nullptr) return GatherOn(*device, state, sources, shape, pads_before);
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor joined, make(state.type, shape));
  Gathering gathering(state, pads_before, joined, nullptr);
  for (size_t row = 0; row < sources.size(); ++row) {
    ONNXD_RETURN_IF_ERROR(gathering.Put(row, sources[row]));
  }
  return joined;
}

}  // namespace onnxd
