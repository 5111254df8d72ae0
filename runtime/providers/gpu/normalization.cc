// BatchNormalization, LayerNormalization and its relatives, InstanceNormalization,
// GroupNormalization: rows by groups of lanes.
#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/row_kernels.h"

namespace onnxd {
namespace {

// Mean first, then the squares of what is left: as exact as the CPU's.
constexpr std::string_view kSource = R"(
KERNEL normalize_rows(GLOBAL const X* in, GLOBAL const X* skip, GLOBAL const X* skip_bias,
                 GLOBAL const S* scale, GLOBAL const S* bias, GLOBAL X* out, GLOBAL X* sum,
                 GLOBAL ACC* mean_out, GLOBAL ACC* deviation_out, i64 width, i64 skip_elements,
                 i64 parameter_rows, i64 parameter_run, f32 epsilon) {
  LOCAL ACC partial[ROW_LANES];
  const i64 row = GROUP(0), base = row * width;
  ACC total = 0;
  for (i64 i = LANE(0); i < width; i += ROW_LANES) {
    ACC x = (ACC)X_GET(in, base + i);
#ifdef HAS_SKIP
    x += (ACC)X_GET(skip, (base + i) % skip_elements);
#ifdef HAS_SKIP_BIAS
    x += (ACC)X_GET(skip_bias, i);
#endif
    X_PUT(sum, base + i, x);
#endif
    total += x;
  }
  ACC mean = 0;
#ifdef CENTERED
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, PLUS)
  mean = partial[0] / (ACC)width;
  BARRIER();
#endif
  ACC squares = 0;
  for (i64 i = LANE(0); i < width; i += ROW_LANES) {
    const ACC x = (ACC)X_GET(SOURCE, base + i) - mean;
    squares += x * x;
  }
  partial[LANE(0)] = squares;
  GROUP_REDUCE(partial, PLUS)
  const ACC inverse = (ACC)1 / sqrt(partial[0] / (ACC)width + (ACC)epsilon);
  for (i64 i = LANE(0); i < width; i += ROW_LANES) {
    const i64 p = PARAMETER;
    ACC y = ((ACC)X_GET(SOURCE, base + i) - mean) * inverse * (ACC)S_GET(scale, p);
#ifdef HAS_BIAS
    y += (ACC)S_GET(bias, p);
#endif
    X_PUT(out, base + i, y);
  }
)";

// What both end with.
constexpr std::string_view kStatistics = R"(
  if (LANE(0) == 0) {
#ifdef WANTS_MEAN
    mean_out[row] = mean;
#endif
#ifdef WANTS_DEVIATION
    deviation_out[row] = inverse;
#endif
  }
}
)";

// The same for rows of whole vectors without a skip: each lane keeps its elements. A group has
// several rows of ROW_LANES lanes where those are a warp.
constexpr std::string_view kVectorSource = R"(
KERNEL normalize_vectors(GLOBAL const X* in, GLOBAL const S* scale, GLOBAL const S* bias,
                         GLOBAL X* out, GLOBAL ACC* mean_out, GLOBAL ACC* deviation_out, i64 rows,
                         i64 width, f32 epsilon) {
  LOCAL ACC of_rows[ROWS * ROW_LANES];
  LOCAL_POINTER ACC* partial = of_rows + LANE(1) * ROW_LANES;
  // Beyond the last row, the last once more.
  const i64 own = GROUP(0) * ROWS + LANE(1), row = own < rows ? own : rows - 1;
  const i64 base = row * width;
  ACC kept[KEPT * VECTOR];
  ACC total = 0;
  UNROLL
  for (i32 r = 0; r < KEPT; ++r) {
    const i64 i = (i64)(r * ROW_LANES + LANE(0)) * VECTOR;
    X_VECTOR x;
    if (i < width) x.words = *(GLOBAL const X_WORDS*)(in + base + i);
    UNROLL
    for (i32 e = 0; e < VECTOR; ++e) {
      kept[r * VECTOR + e] = i < width ? (ACC)X_GET(x.at, e) : (ACC)0;
      total += kept[r * VECTOR + e];
    }
  }
  ACC mean = 0;
#ifdef CENTERED
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, PLUS)
  mean = partial[0] / (ACC)width;
  ROWS_BARRIER();
#endif
  ACC squares = 0;
  UNROLL
  for (i32 r = 0; r < KEPT; ++r) {
    const i64 i = (i64)(r * ROW_LANES + LANE(0)) * VECTOR;
    UNROLL
    for (i32 e = 0; e < VECTOR; ++e) {
      const ACC x = kept[r * VECTOR + e] - mean;
      if (i < width) squares += x * x;
    }
  }
  partial[LANE(0)] = squares;
  GROUP_REDUCE(partial, PLUS)
  const ACC inverse = (ACC)1 / sqrt(partial[0] / (ACC)width + (ACC)epsilon);
  UNROLL
  for (i32 r = 0; r < KEPT; ++r) {
    const i64 i = (i64)(r * ROW_LANES + LANE(0)) * VECTOR;
    if (i < width) {
      S_VECTOR factors;
      factors.words = *(GLOBAL const S_WORDS*)(scale + i);
#ifdef HAS_BIAS
      S_VECTOR shifts;
      shifts.words = *(GLOBAL const S_WORDS*)(bias + i);
#endif
      X_VECTOR y;
      UNROLL
      for (i32 e = 0; e < VECTOR; ++e) {
        ACC value = (kept[r * VECTOR + e] - mean) * inverse * (ACC)S_GET(factors.at, e);
#ifdef HAS_BIAS
        value += (ACC)S_GET(shifts.at, e);
#endif
        X_PUT(y.at, e, value);
      }
      *(GLOBAL X_WORDS*)(out + base + i) = y.words;
    }
  }
)";

// Which parts the kernel has, and where row and column find their scale and bias.
struct Form {
  DataType type, scale_type;
  bool centered = true, has_bias = false, has_skip = false, has_skip_bias = false;
  bool wants_mean = false, wants_deviation = false;
  // Of the parameters: "i" along the row; or by the row and the column's run, for channels.
  std::string_view parameter = "i";
};

std::string SourceOf(const Form& form) {
  std::string source = DefineType("X", form.type) + DefineType("S", form.scale_type) +
                       Define("ACC", ComputeName(form.type)) + Define("PARAMETER", form.parameter) +
                       Define("SOURCE", form.has_skip ? "sum" : "in");
  const auto flag = [&](bool set, std::string_view name) {
    if (set) source += Define(name, 1);
  };
  flag(form.centered, "CENTERED");
  flag(form.has_bias, "HAS_BIAS");
  flag(form.has_skip, "HAS_SKIP");
  flag(form.has_skip_bias, "HAS_SKIP_BIAS");
  flag(form.wants_mean, "WANTS_MEAN");
  flag(form.wants_deviation, "WANTS_DEVIATION");
  return source;
}

// Operands by their place in the node; -1: none.
struct Operands {
  int skip = -1, skip_bias = -1, scale = 1, bias = -1;
  int sum = -1, mean = -1, deviation = -1;
};

struct Rows {
  int64_t rows, width;
  int64_t skip_elements = 1, parameter_rows = 1, parameter_run = 1;
};

// How lanes share a row by vectors.
struct VectorForm {
  int64_t vector = 0, kept = 0;                         // elements of a vector, vectors of a lane
  int64_t lanes = 0;                                    // 0: it is not for vectors
  int64_t rows() const { return lanes == 32 ? 4 : 1; }  // of a group
};

VectorForm VectorFormOf(const Form& form, int64_t width) {
  constexpr int64_t kMostBytes = 16, kMostLanes = 256, kMostKept = 4;
  const DataType widest =
      DataTypeBits(form.type) > DataTypeBits(form.scale_type) ? form.type : form.scale_type;
  VectorForm vectors;
  vectors.vector = kMostBytes / static_cast<int64_t>(DataTypeBits(widest) / 8);
  const int64_t count = width / vectors.vector;
  if (form.has_skip || form.parameter != "i" || width % vectors.vector != 0 ||
      count > kMostLanes * kMostKept) {
    return {};
  }
  vectors.lanes = 32;
  while (vectors.lanes * kMostKept < count) vectors.lanes *= 2;
  vectors.kept = (count + vectors.lanes - 1) / vectors.lanes;
  return vectors;
}

Result<PreparedKernel> PrepareVectors(GpuDevice& device, const Form& form, const Operands& operands,
                                      const Rows& rows, const VectorForm& vectors, float epsilon) {
  const std::string source =
      StrCat(Define("ROW_LANES", vectors.lanes), Define("ROWS", vectors.rows()),
             Define("VECTOR", vectors.vector), Define("KEPT", vectors.kept), SourceOf(form),
             DefineVector("X", form.type, vectors.vector),
             DefineVector("S", form.scale_type, vectors.vector), kRowFunctions, kVectorSource,
             kStatistics);
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "normalize_vectors"));
  PreparedKernel prepared;
  prepared.compute = [=](const KernelContext& k) {
    const auto output = [&](int i) {
      return i < 0 ? nullptr : k.output<void>(static_cast<size_t>(i));
    };
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(static_cast<size_t>(operands.scale)));
    arguments.Pointer(operands.bias < 0 ? nullptr
                                        : k.input<void>(static_cast<size_t>(operands.bias)));
    arguments.Pointer(k.output<void>(0));
    arguments.Pointer(output(operands.mean)).Pointer(output(operands.deviation));
    arguments.Value(rows.rows).Value(rows.width).Value(epsilon);
    LaunchGrid grid;
    grid.groups[0] = static_cast<uint32_t>((rows.rows - 1) / vectors.rows() + 1);
    grid.lanes[0] = static_cast<uint32_t>(vectors.lanes);
    grid.lanes[1] = static_cast<uint32_t>(vectors.rows());
    return Launch(k, kernel, grid, arguments);
  };
  return prepared;
}

Result<PreparedKernel> PrepareRows(GpuDevice& device, const Form& form, const Operands& operands,
                                   const Rows& rows, float epsilon) {
  if (rows.rows * rows.width == 0) return NothingToDo();
  const VectorForm vectors = VectorFormOf(form, rows.width);
  if (vectors.lanes > 0) return PrepareVectors(device, form, operands, rows, vectors, epsilon);
  ONNXD_ASSIGN_OR_RETURN(
      const GpuProgram kernel,
      device.FindKernel(StrCat(SourceOf(form), kRowFunctions, kSource, kStatistics),
                        "normalize_rows"));
  PreparedKernel prepared;
  // The sums of a row are kept where the result goes, unless they are an output.
  prepared.compute = [=](const KernelContext& k) {
    const auto input = [&](int i) {
      return i < 0 ? nullptr : k.input<void>(static_cast<size_t>(i));
    };
    const auto output = [&](int i) {
      return i < 0 ? nullptr : k.output<void>(static_cast<size_t>(i));
    };
    void* const sum = operands.sum < 0 ? k.output<void>(0) : output(operands.sum);
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(0)).Pointer(input(operands.skip));
    arguments.Pointer(input(operands.skip_bias)).Pointer(input(operands.scale));
    arguments.Pointer(input(operands.bias)).Pointer(k.output<void>(0)).Pointer(sum);
    arguments.Pointer(output(operands.mean)).Pointer(output(operands.deviation));
    arguments.Value(rows.width).Value(rows.skip_elements).Value(rows.parameter_rows);
    arguments.Value(rows.parameter_run).Value(epsilon);
    LaunchGrid grid;
    grid.groups[0] = static_cast<uint32_t>(rows.rows);
    grid.lanes[0] = kRowLanes;
    return Launch(k, kernel, grid, arguments);
  };
  return prepared;
}

bool IsFloat(DataType type) { return IsDeviceType(type) && IsFloatingPoint(type); }

// Whether a scale or bias is known to have other extents than a row.
bool BroadcastsParameters(const KernelInfo& info) {
  const auto& x = info.input_types[0].shape;
  if (!x) return false;
  const auto axis =
      NormalizeAxis(info.node.attributes.Int("axis", -1), static_cast<int>(x->size()));
  for (size_t i = 1; axis.ok() && i < std::min<size_t>(info.input_types.size(), 3); ++i) {
    const auto& given = info.input_types[i].shape;
    if (info.node.input(i) == kNoValue || !given || given->size() > x->size()) continue;
    const size_t missing = x->size() - given->size();
    for (size_t d = 0; d < x->size(); ++d) {
      const Dimension wanted = d < static_cast<size_t>(*axis) ? Dimension(1) : (*x)[d];
      const Dimension extent = d < missing ? Dimension(1) : (*given)[d - missing];
      if (extent.known() && wanted.known() && extent.value != wanted.value) return true;
    }
  }
  return false;
}

Status DeclineBroadcast(const PrepareContext& context, size_t input) {
  return Unimplemented(StrCat(Describe(context.node), ": input ", input, " of shape ",
                              context.InputShape(input).ToString(),
                              " is broadcast, which is not supported"));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuBatchNormalization(const KernelInfo& info,
                                                          GpuDevice& device) {
  if (!IsFloat(info.InputType(0))) return DeclineOnDevice(info, info.InputType(0));
  for (size_t i = 1; i < info.node.outputs.size(); ++i) {
    if (info.node.outputs[i] != kNoValue) return Unimplemented("training outputs");
  }
  if (info.node.attributes.Int("training_mode", 0) != 0 ||
      info.node.attributes.Int("spatial", 1) == 0) {
    return Unimplemented("training, or statistics by element");
  }
  PointwiseProgram program;
  for (size_t i = 0; i < 5; ++i) program.inputs.push_back(info.InputType(i));
  program.outputs = {info.OutputType(0)};
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  program.statements =
      StrCat("  const X0_C scale = (X0_C)x1 / sqrt((X0_C)x4 + (X0_C)", epsilon, ");\n");
  program.results = {"x0 * scale + ((X0_C)x2 - (X0_C)x3 * scale)"};
  return MakeGpuKernel([program, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    std::vector<int64_t> channels(static_cast<size_t>(std::max(shape.rank() - 1, 1)), 1);
    channels[0] = shape[1];
    const Shape parameter(channels);
    for (size_t i = 1; i < 5; ++i) {
      if (context.InputShape(i).ElementCount() != shape[1]) {
        return InvalidArgument(StrCat(Describe(context.node), ": input ", i, " has shape ",
                                      context.InputShape(i).ToString()));
      }
    }
    return PreparePointwise(
        program, device,
        std::vector<const Shape*>{&shape, &parameter, &parameter, &parameter, &parameter},
        context.OutputShape(0), nullptr);
  });
}

// LayerNormalization, RMSNormalization and SimplifiedLayerNormalization: rows from `axis` on.
Result<std::unique_ptr<Kernel>> MakeGpuLayerNormalization(const KernelInfo& info,
                                                          GpuDevice& device) {
  const DataType type = info.InputType(0), scale_type = info.InputType(1);
  if (!IsFloat(type) || !IsFloat(scale_type)) return DeclineOnDevice(info, type);
  const bool centered = info.node.op_type == "LayerNormalization";
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  const size_t deviation_output = centered ? 2 : 1;
  if (BroadcastsParameters(info)) return Unimplemented("scale or bias that is broadcast");
  for (size_t i = 1; i < info.node.outputs.size(); ++i) {
    // Statistics come as the kernel computes them.
    const DataType computed = type == DataType::kDouble ? DataType::kDouble : DataType::kFloat;
    if (info.node.outputs[i] != kNoValue && info.OutputType(i) != computed) {
      return DeclineOnDevice(info, info.OutputType(i));
    }
  }
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", -1), shape.rank()));
    const Rows rows{shape.ElementCount(0, axis), shape.ElementCount(axis, shape.rank())};
    const bool has_bias = context.HasInput(2);
    for (size_t i = 1; i <= (has_bias ? 2u : 1u); ++i) {
      if (context.InputShape(i).ElementCount() != rows.width) return DeclineBroadcast(context, i);
    }
    Form form{type, scale_type};
    form.centered = centered;
    form.has_bias = has_bias;
    form.wants_mean = centered && context.HasOutput(1);
    form.wants_deviation = context.HasOutput(deviation_output);
    Operands operands;
    operands.bias = has_bias ? 2 : -1;
    operands.mean = form.wants_mean ? 1 : -1;
    operands.deviation = form.wants_deviation ? static_cast<int>(deviation_output) : -1;
    return PrepareRows(device, form, operands, rows, epsilon);
  });
}

// com.microsoft SkipLayerNormalization and SkipSimplifiedLayerNormalization: of input + skip +
// bias.
Result<std::unique_ptr<Kernel>> MakeGpuSkipLayerNormalization(const KernelInfo& info,
                                                              GpuDevice& device) {
  const DataType type = info.InputType(0);
  const bool centered = info.node.op_type == "SkipLayerNormalization";
  if (!IsFloat(type) || info.InputType(2) != type) return DeclineOnDevice(info, type);
  for (size_t i = 1; i <= 2 && i < info.node.outputs.size(); ++i) {
    if (info.node.outputs[i] != kNoValue) return Unimplemented("statistics as outputs");
  }
  const float epsilon = info.node.attributes.Float("epsilon", 1e-12f);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    if (shape.rank() < 1) return InvalidArgument(StrCat(Describe(context.node), " needs rows"));
    Rows rows{shape.ElementCount(0, shape.rank() - 1), shape[shape.rank() - 1]};
    const size_t bias = 3, skip_bias = centered ? 4 : 3;
    rows.skip_elements = context.InputShape(1).ElementCount();
    const bool fits = [&] {
      if (rows.width == 0) return true;
      if (rows.skip_elements == 0 || rows.skip_elements % rows.width != 0) return false;
      return shape.ElementCount() % rows.skip_elements == 0;
    }();
    for (size_t i = 2; i < context.inputs.size(); ++i) {
      if (context.HasInput(i) && context.InputShape(i).ElementCount() != rows.width) {
        return InvalidArgument(StrCat(Describe(context.node), ": input ", i, " has shape ",
                                      context.InputShape(i).ToString()));
      }
    }
    if (!fits) return InvalidArgument(StrCat(Describe(context.node), ": shapes do not match"));
    Form form{type, type};
    form.centered = centered;
    form.has_skip = true;
    form.has_skip_bias = context.HasInput(skip_bias);
    form.has_bias = centered && context.HasInput(bias);
    Operands operands;
    operands.skip = 1;
    operands.scale = 2;
    operands.bias = form.has_bias ? static_cast<int>(bias) : -1;
    operands.skip_bias = form.has_skip_bias ? static_cast<int>(skip_bias) : -1;
    operands.sum = context.HasOutput(3) ? 3 : -1;
    return PrepareRows(device, form, operands, rows, epsilon);
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuInstanceNormalization(const KernelInfo& info,
                                                             GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type) || info.InputType(1) != type) return DeclineOnDevice(info, type);
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    Rows rows{shape[0] * shape[1], shape.ElementCount(2, shape.rank())};
    rows.parameter_rows = shape[1];
    Form form{type, type};
    form.has_bias = true;
    form.parameter = "(row % parameter_rows)";
    Operands operands;
    operands.bias = 2;
    return PrepareRows(device, form, operands, rows, epsilon);
  });
}

// Scale and bias are per channel since version 21, per group before.
Result<std::unique_ptr<Kernel>> MakeGpuGroupNormalization(const KernelInfo& info,
                                                          GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (!IsFloat(type) || info.InputType(1) != type) return DeclineOnDevice(info, type);
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  const int64_t groups = info.node.attributes.Int("num_groups", 1);
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    if (groups <= 0 || shape[1] % groups != 0) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": ", shape[1], " channels in ", groups, " groups"));
    }
    const bool per_channel = context.InputShape(1).ElementCount() == shape[1];
    Rows rows{shape[0] * groups, shape.ElementCount(1, shape.rank()) / groups};
    rows.parameter_rows = groups;
    rows.parameter_run = shape.ElementCount(2, shape.rank());
    Form form{type, type};
    form.has_bias = true;
    form.parameter = per_channel ? "((row % parameter_rows) * (width / parameter_run) + "
                                   "i / parameter_run)"
                                 : "(row % parameter_rows)";
    Operands operands;
    operands.bias = 2;
    return PrepareRows(device, form, operands, rows, epsilon);
  });
}

}  // namespace onnxd
