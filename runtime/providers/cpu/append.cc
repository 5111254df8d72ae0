// onnxd::Append: Concat of a state, but for its first tokens, and of new ones. As many are left out
// as `dropped` has elements.
#include <algorithm>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kBytesGrain = 1 << 16;  // of a thread, at least

// Bytes of one row of the three.
struct AppendedRow {
  int64_t state, dropped, added;

  int64_t kept() const { return state - dropped; }
  int64_t result() const { return kept() + added; }
};

Result<PreparedKernel> PrepareAppend(const PrepareContext& context) {
  const Shape &state = context.InputShape(0), &added = context.InputShape(1);
  const Shape& out = context.OutputShape(0);
  const int64_t axis = context.node.attributes.Int("axis", 0);
  const int64_t dropped = context.InputShape(2)[0];
  if (axis < 0 || axis >= out.rank() || dropped > state[static_cast<int>(axis)]) {
    return InvalidArgument(StrCat(Describe(context.node), ": axis ", axis, " of a state ",
                                  state.ToString(), " has no ", dropped, " tokens to drop"));
  }
  const int at = static_cast<int>(axis);
  const int64_t unit =
      out.ElementCount(at + 1, out.rank()) * DataTypeBits(context.outputs[0].type) / 8;
  const AppendedRow row{state[at] * unit, dropped * unit, added[at] * unit};
  const int64_t rows = out.ElementCount(0, at);
  PreparedKernel prepared;
  if (row.dropped == row.added) {
    prepared.shifts = {{0, 0, static_cast<size_t>(row.dropped)}};
  }
  prepared.compute = [row, rows](const KernelContext& k) {
    // What stays of the state is there already, where the output is a shift of it.
    const bool stays = k.output<std::byte>(0) == k.input<std::byte>(0) + row.dropped;
    const int64_t grain = std::max<int64_t>(1, kBytesGrain / std::max<int64_t>(1, row.result()));
    k.pool().ParallelFor(rows, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        std::byte* const to = k.output<std::byte>(0) + i * row.result();
        if (!stays) {
          std::memcpy(to, k.input<std::byte>(0) + i * row.state + row.dropped,
                      static_cast<size_t>(row.kept()));
        }
        std::memcpy(to + row.kept(), k.input<std::byte>(1) + i * row.added,
                    static_cast<size_t>(row.added));
      }
    });
    return Status::Ok();
  };
  return prepared;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeAppend(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Append", type);
  return MakeKernel(PrepareAppend);
}

}  // namespace onnxd
