// ai.onnx.ml SVMClassifier-1 and SVMRegressor-1. Sources: the operators' texts, libsvm (voting,
// pairwise probabilities after Wu, Lin and Weng, 2004).
#include <algorithm>
#include <cmath>

#include "runtime/base/function_ref.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/post_transform.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

constexpr int64_t kRowsTogether = 64, kKernelsTogether = 1 << 16;

// Powers as libsvm has them: of an integer, by squares.
void RaiseAll(float* values, int64_t count, int degree) {
  constexpr int64_t kTogether = 256;
  float power[kTogether];
  for (int64_t first = 0; first < count; first += kTogether, values += kTogether) {
    const int64_t n = std::min(kTogether, count - first);
    std::fill_n(power, n, 1.0f);
    for (unsigned left = static_cast<unsigned>(std::abs(degree)); left > 0; left >>= 1) {
      if ((left & 1) != 0) {
        for (int64_t i = 0; i < n; ++i) power[i] *= values[i];
      }
      for (int64_t i = 0; i < n; ++i) values[i] *= values[i];
    }
    for (int64_t i = 0; i < n; ++i) values[i] = degree < 0 ? 1 / power[i] : power[i];
  }
}

// The kernel function between rows and the vectors that the model has.
struct SvmKernel {
  std::string type;
  float gamma = 0, coef0 = 0;
  int degree = 0;
  int64_t vectors = 0, features = 0;
  std::vector<float> columns;  // [features, vectors]

  // Of vectors: [vectors, features].
  void Take(const std::vector<float>& list, int64_t count) {
    vectors = count;
    features = std::ssize(list) / count;
    columns.resize(list.size());
    for (int64_t v = 0; v < vectors; ++v) {
      for (int64_t f = 0; f < features; ++f) {
        columns[static_cast<size_t>(f * vectors + v)] = list[static_cast<size_t>(v * features + f)];
      }
    }
  }

  // x: [rows, features]; out: [rows, vectors].
  void operator()(const float* x, int64_t rows, float* out) const {
    const math::Simd& simd = math::CurrentSimd();
    const auto combine = type == "RBF" ? simd.squared_distances : simd.point_products;
    combine({rows, vectors, features, x, columns.data(), out});
    const int64_t all = rows * vectors;
    if (type == "RBF") {
      simd.affine(out, out, all, -gamma, 0);
      simd.unary(math::Unary::kExp, out, out, all);
    } else if (type == "POLY") {
      simd.affine(out, out, all, gamma, coef0);
      RaiseAll(out, all, degree);
    } else if (type == "SIGMOID") {
      simd.affine(out, out, all, gamma, coef0);
      simd.unary(math::Unary::kTanh, out, out, all);
    }
  }
};

struct SvmModel {
  SvmKernel kernel;
  std::vector<float> coefficients, rho, prob_a, prob_b;
  std::vector<int64_t> per_class, integers;
  std::vector<std::string> strings;
  PostTransform transform = PostTransform::kNone;
  int64_t supports = 0, classes = 1;
  bool one_class = false, all_positive = true;
  bool is_summed = false;  // the kernel's vectors are sums, see SumVectors

  int64_t features() const { return kernel.features; }
};

// What one of two classes brings to the decision between them.
struct Side {
  const float* coefficients;  // of all vectors
  struct {
    int64_t begin, count;
  } vectors;
};

// Calls body(i, j, side of i, side of j) for each pair of classes, in libsvm's order.
template <typename Body>
void ForEachDecision(const SvmModel& m, const Body& body) {
  int64_t begin_i = 0;
  for (int64_t i = 0; i < m.classes; ++i) {
    const int64_t count_i = m.per_class[static_cast<size_t>(i)];
    int64_t begin_j = begin_i + count_i;
    for (int64_t j = i + 1; j < m.classes; ++j) {
      const int64_t count_j = m.per_class[static_cast<size_t>(j)];
      body(i, j, Side{m.coefficients.data() + (j - 1) * m.supports, {begin_i, count_i}},
           Side{m.coefficients.data() + i * m.supports, {begin_j, count_j}});
      begin_j += count_j;
    }
    begin_i += count_i;
  }
}

// What a decision of a linear kernel multiplies with: its vectors, each by its coefficient, added
// up. [decisions, features].
std::vector<float> SumVectors(const SvmModel& m, const std::vector<float>& vectors,
                              bool classifier) {
  const size_t n = vectors.size() / static_cast<size_t>(m.supports);
  std::vector<float> sums;
  std::vector<double> sum(n);
  const auto add = [&](const Side& side) {
    for (int64_t s = side.vectors.begin; s < side.vectors.begin + side.vectors.count; ++s) {
      const auto coefficient = static_cast<double>(side.coefficients[s]);
      const float* vector = vectors.data() + static_cast<size_t>(s) * n;
      for (size_t f = 0; f < n; ++f) sum[f] += coefficient * static_cast<double>(vector[f]);
    }
  };
  const auto finish = [&] {
    sums.insert(sums.end(), sum.begin(), sum.end());
    std::fill(sum.begin(), sum.end(), 0.0);
  };
  if (classifier) {
    ForEachDecision(m, [&](int64_t, int64_t, const Side& first, const Side& second) {
      add(first);
      add(second);
      finish();
    });
  } else {
    add({m.coefficients.data(), {0, m.supports}});
    finish();
  }
  return sums;
}

Result<SvmModel> ModelOf(const Node& node, bool classifier) {
  const Attributes& a = node.attributes;
  SvmModel m;
  m.kernel.type = a.String("kernel_type", "LINEAR");
  const auto parameters = a.Floats("kernel_params");
  if (parameters.size() >= 3) {
    m.kernel.gamma = parameters[0];
    m.kernel.coef0 = parameters[1];
    m.kernel.degree = Truncated<int>(static_cast<double>(std::clamp(parameters[2], -1e6f, 1e6f)));
  }
  const std::vector<float> vectors = a.Floats("support_vectors");
  m.coefficients = a.Floats("coefficients");
  m.rho = a.Floats("rho");
  m.prob_a = a.Floats("prob_a");
  m.prob_b = a.Floats("prob_b");
  m.per_class = a.Ints("vectors_per_class");
  m.integers = a.Ints("classlabels_ints");
  m.strings = a.Strings("classlabels_strings");
  m.one_class = a.Int("one_class", 0) != 0;
  ONNXD_ASSIGN_OR_RETURN(m.transform, PostTransformOf(a.String("post_transform", "NONE")));
  for (const float c : m.coefficients) m.all_positive = m.all_positive && c >= 0;
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why));
  };
  m.classes = std::max<int64_t>(1, static_cast<int64_t>(m.integers.size() + m.strings.size()));
  if (classifier) {
    for (const int64_t count : m.per_class) {
      if (count < 0 || count > static_cast<int64_t>(vectors.size()))
        return fail("vectors_per_class");
      m.supports += count;
    }
  } else {
    m.supports = a.Int("n_supports", 0);
  }
  if (m.supports < 0 || m.rho.empty() || m.coefficients.empty()) {
    return fail("rho, coefficients or n_supports do not fit");
  }
  if (m.supports == 0) {
    m.kernel.type = "LINEAR";
    if (static_cast<int64_t>(m.coefficients.size()) % m.classes != 0) return fail("coefficients");
    m.kernel.Take(m.coefficients, m.classes);
    return m;
  }
  const int64_t pairs = m.classes * (m.classes - 1) / 2;
  const int64_t rows = classifier ? m.classes - 1 : 1;
  const bool fits = !vectors.empty() && static_cast<int64_t>(vectors.size()) % m.supports == 0 &&
                    static_cast<int64_t>(m.coefficients.size()) >= rows * m.supports &&
                    (!classifier || (static_cast<int64_t>(m.per_class.size()) == m.classes &&
                                     static_cast<int64_t>(m.rho.size()) >= pairs)) &&
                    m.prob_a.size() == m.prob_b.size() &&
                    (m.prob_a.empty() || static_cast<int64_t>(m.prob_a.size()) >= pairs);
  if (!fits) return fail("the lists do not fit each other");
  const int64_t decisions = classifier ? pairs : 1;
  m.is_summed = m.kernel.type == "LINEAR" && decisions > 0 && decisions <= m.supports;
  if (m.is_summed) {
    m.kernel.Take(SumVectors(m, vectors, classifier), decisions);
  } else {
    m.kernel.Take(vectors, m.supports);
  }
  return m;
}

float Logistic(float x) { return 1.0f / (1.0f + std::exp(-x)); }

// Probabilities of all classes from those of each pair.
std::vector<float> CouplePairs(const std::vector<double>& r, size_t k) {
  std::vector<double> q(k * k, 0), p(k, 1.0 / static_cast<double>(k)), qp(k);
  for (size_t t = 0; t < k; ++t) {
    for (size_t j = 0; j < k; ++j) {
      if (j == t) continue;
      q[t * k + t] += r[j * k + t] * r[j * k + t];
      q[t * k + j] = -r[j * k + t] * r[t * k + j];
    }
  }
  const size_t rounds = std::max<size_t>(100, k);
  for (size_t round = 0; round < rounds; ++round) {
    double pqp = 0, worst = 0;
    for (size_t t = 0; t < k; ++t) {
      qp[t] = 0;
      for (size_t j = 0; j < k; ++j) qp[t] += q[t * k + j] * p[j];
      pqp += p[t] * qp[t];
    }
    for (size_t t = 0; t < k; ++t) worst = std::max(worst, std::abs(qp[t] - pqp));
    if (worst < 0.005 / static_cast<double>(k)) break;
    for (size_t t = 0; t < k; ++t) {
      const double diff = (pqp - qp[t]) / q[t * k + t];
      p[t] += diff;
      pqp = (pqp + diff * (diff * q[t * k + t] + 2 * qp[t])) / (1 + diff) / (1 + diff);
      for (size_t j = 0; j < k; ++j) {
        qp[j] = (qp[j] + diff * q[t * k + j]) / (1 + diff);
        p[j] /= 1 + diff;
      }
    }
  }
  return {p.begin(), p.end()};
}

float Dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  if (n > 0) math::CurrentSimd().few_columns({1, 1, n, a, n, b, &sum, 1});
  return sum;
}

struct Decision {
  std::vector<float> scores;
  std::vector<float> votes;  // empty for linear models
};

// By what the kernel function gives for each vector.
Decision Decide(const SvmModel& m, const float* kernels) {
  Decision d;
  if (m.supports == 0) {
    for (int64_t c = 0; c < m.classes; ++c) d.scores.push_back(m.rho[0] + kernels[c]);
    return d;
  }
  d.votes.assign(static_cast<size_t>(m.classes), 0.0f);
  const auto part = [&](const Side& side) {
    const auto [begin, count] = side.vectors;
    return Dot(side.coefficients + begin, kernels + begin, count);
  };
  ForEachDecision(m, [&](int64_t i, int64_t j, const Side& first, const Side& second) {
    const size_t decision = d.scores.size();
    const float sum = m.is_summed ? kernels[decision] : part(first) + part(second);
    const float score = m.rho[decision] + sum;
    d.scores.push_back(score);
    ++d.votes[static_cast<size_t>(score > 0 ? i : j)];
  });
  return d;
}

// Calls finish(row, its kernels), some rows at a time.
void ForEachRow(const SvmModel& m, const std::vector<float>& x,
                FunctionRef<void(int64_t, const float*)> finish) {
  const int64_t n = m.features(), rows = std::ssize(x) / n, vectors = m.kernel.vectors;
  const int64_t together = std::clamp<int64_t>(kKernelsTogether / vectors, 1, kRowsTogether);
  std::vector<float> kernels(static_cast<size_t>(std::min(rows, together) * vectors));
  for (int64_t first = 0; first < rows; first += together) {
    const int64_t count = std::min(together, rows - first);
    m.kernel(x.data() + first * n, count, kernels.data());
    for (int64_t i = 0; i < count; ++i) finish(first + i, kernels.data() + i * vectors);
  }
}

std::vector<float> Probabilities(const SvmModel& m, const std::vector<float>& scores) {
  const auto k = static_cast<size_t>(m.classes);
  std::vector<double> pairs(k * k, 0);
  size_t index = 0;
  for (size_t i = 0; i < k; ++i) {
    for (size_t j = i + 1; j < k; ++j, ++index) {
      const float value = 1 - Logistic(scores[index] * m.prob_a[index] + m.prob_b[index]);
      const double p = std::clamp(static_cast<double>(value), 1e-7, 1 - 1e-7);
      pairs[i * k + j] = p;
      pairs[j * k + i] = 1 - p;
    }
  }
  return CouplePairs(pairs, k);
}

// Index of the winning class, or for one decision function its sign; then the scores as they are
// handed out.
struct Verdict {
  int64_t label;       // index into the class labels
  bool plain = false;  // `label` is the label itself
  std::vector<float> scores;
};

Verdict Judge(const SvmModel& m, const Decision& d) {
  const bool probable = !m.prob_a.empty() && m.supports > 0;
  Verdict v;
  v.scores = probable ? Probabilities(m, d.scores) : d.scores;
  const std::vector<float>& ranking = d.votes.empty() ? v.scores : d.votes;
  const auto best = std::max_element(ranking.begin(), ranking.end());
  v.label = best - ranking.begin();
  bool two_columns = false;
  if (m.rho.size() == 1) {
    if (m.integers.size() + m.strings.size() == 2) {
      two_columns = true;
      if (!probable && m.all_positive && *best >= 0.5f) v.label = 1;
    } else {
      v.plain = true;
      v.label = *best > 0 ? 1 : 0;
    }
  }
  if (v.scores.size() == 1 && two_columns) {
    const float score = v.scores[0];
    v.scores = {-score, score};
    if (m.transform == PostTransform::kLogistic) v.scores = {Logistic(-score), Logistic(score)};
    if (m.transform == PostTransform::kLogistic) return v;
  }
  ApplyPostTransform(m.transform, v.scores.data(), static_cast<int64_t>(v.scores.size()));
  return v;
}

Status CheckInput(const Node& node, const SvmModel& m, const Shape& shape) {
  const int64_t width = shape.rank() == 0 ? 0 : shape[shape.rank() - 1];
  if (shape.rank() <= 2 && width == m.features() && width > 0) return Status::Ok();
  return InvalidArgument(StrCat(Describe(node), ": input of shape ", shape.ToString(),
                                ", the model has ", m.features(), " features"));
}

Result<Values> Classify(const Node& node, std::span<const Value> inputs, const SvmModel& m) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_RETURN_IF_ERROR(CheckInput(node, m, x.shape()));
  const std::vector<float> in = ElementsAs<float>(x);
  const int64_t n = m.features(), rows = x.ElementCount() / n;
  const bool text = !m.strings.empty();
  ONNXD_ASSIGN_OR_RETURN(Tensor labels,
                         Tensor::Create(text ? DataType::kString : DataType::kInt64, Shape{rows}));
  std::vector<float> scores;
  int64_t columns = 0;
  ForEachRow(m, in, [&](int64_t r, const float* kernels) {
    const Verdict v = Judge(m, Decide(m, kernels));
    columns = static_cast<int64_t>(v.scores.size());
    scores.insert(scores.end(), v.scores.begin(), v.scores.end());
    const auto at = static_cast<size_t>(v.label);
    if (text) {
      labels.mutable_data<std::string>()[r] = at < m.strings.size() ? m.strings[at] : "";
    } else {
      labels.mutable_data<int64_t>()[r] =
          !v.plain && at < m.integers.size() ? m.integers[at] : v.label;
    }
  });
  ONNXD_ASSIGN_OR_RETURN(Tensor out, TensorFrom(DataType::kFloat, Shape{rows, columns}, scores));
  return Values{std::move(labels), std::move(out)};
}

Result<Values> Regress(const Node& node, std::span<const Value> inputs, const SvmModel& m) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_RETURN_IF_ERROR(CheckInput(node, m, x.shape()));
  const std::vector<float> in = ElementsAs<float>(x);
  const int64_t n = m.features(), rows = x.ElementCount() / n;
  std::vector<float> out;
  ForEachRow(m, in, [&](int64_t, const float* kernels) {
    float sum = m.rho[0];
    const bool is_sum = m.supports == 0 || m.is_summed;
    sum += is_sum ? kernels[0] : Dot(m.coefficients.data(), kernels, m.supports);
    if (m.one_class) sum = sum > 0 ? 1.0f : -1.0f;
    ApplyPostTransform(m.transform, &sum, 1);
    out.push_back(sum);
  });
  return OneValue(TensorFrom(DataType::kFloat, Shape{rows, 1}, out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSvmClassifier(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(SvmModel made, ModelOf(info.node, true));
  auto model = std::make_shared<const SvmModel>(std::move(made));
  return MakeEagerKernel([model](const Node& node, std::span<const Value> inputs) {
    return Classify(node, inputs, *model);
  });
}

Result<std::unique_ptr<Kernel>> MakeSvmRegressor(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(SvmModel made, ModelOf(info.node, false));
  auto model = std::make_shared<const SvmModel>(std::move(made));
  return MakeEagerKernel([model](const Node& node, std::span<const Value> inputs) {
    return Regress(node, inputs, *model);
  });
}

}  // namespace onnxd
