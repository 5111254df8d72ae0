#include "runtime/ops/einsum.h"

#include <algorithm>
#include <map>
#include <set>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

constexpr int kEllipsis = -1;

class Parser {
 public:
  Parser(const Node& node, const std::vector<int>& ranks) : node_(node), ranks_(ranks) {}

  Result<EinsumEquation> Run() {
    std::string text = node_.attributes.String("equation", "");
    text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
    const size_t arrow = text.find("->");
    const std::string left = text.substr(0, arrow);
    EinsumEquation equation;
    for (size_t begin = 0; begin <= left.size();) {
      const size_t end = std::min(left.find(',', begin), left.size());
      const size_t at = equation.inputs.size();
      if (at >= ranks_.size()) return Fail("it has more terms than inputs");
      ONNXD_ASSIGN_OR_RETURN(auto labels, Term(left.substr(begin, end - begin), ranks_[at]));
      equation.inputs.push_back(std::move(labels));
      begin = end + 1;
    }
    if (equation.inputs.size() != ranks_.size()) return Fail("it has fewer terms than inputs");
    if (arrow == std::string::npos) {
      equation.output = ImplicitOutput(equation);
    } else {
      ONNXD_ASSIGN_OR_RETURN(equation.output, Term(text.substr(arrow + 2), -1));
    }
    equation.label_count = kFirstEllipsis + kMaxRank;
    return equation;
  }

 private:
  static constexpr int kFirstEllipsis = 52;  // after the letters

  Status Fail(std::string_view why) const {
    return InvalidArgument(StrCat(Describe(node_), ": equation '",
                                  node_.attributes.String("equation", ""), "': ", why));
  }

  // `rank` -1: the output, whose ellipsis has as many dimensions as the widest input's.
  Result<std::vector<int>> Term(const std::string& text, int rank) {
    std::vector<int> labels;
    bool ellipsis = false;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (text.compare(i, 3, "...") == 0 && !ellipsis) {
        ellipsis = true;
        labels.push_back(kEllipsis);
        i += 2;
      } else if (c >= 'a' && c <= 'z') {
        labels.push_back(c - 'a');
      } else if (c >= 'A' && c <= 'Z') {
        labels.push_back(26 + c - 'A');
      } else {
        return Fail("it holds an unexpected character");
      }
    }
    const int letters = static_cast<int>(labels.size()) - (ellipsis ? 1 : 0);
    if (rank >= 0 && (letters > rank || (!ellipsis && letters != rank))) {
      return Fail(StrCat("a term has ", letters, " letters for an input of rank ", rank));
    }
    if (!ellipsis) return labels;
    const int extra = rank >= 0 ? rank - letters : widest_;
    widest_ = std::max(widest_, extra);
    const auto at = std::find(labels.begin(), labels.end(), kEllipsis);
    std::vector<int> expanded(labels.begin(), at);
    // Ellipses align at their last dimension.
    for (int i = 0; i < extra; ++i) expanded.push_back(kFirstEllipsis + kMaxRank - extra + i);
    expanded.insert(expanded.end(), at + 1, labels.end());
    return expanded;
  }

  std::vector<int> ImplicitOutput(const EinsumEquation& equation) const {
    std::map<int, int> counts;
    for (const auto& labels : equation.inputs) {
      for (const int label : labels) ++counts[label];
    }
    std::vector<int> output;
    for (const auto& [label, count] : counts) {
      if (label >= kFirstEllipsis) output.push_back(label);
    }
    // Capital letters sort before small ones.
    for (const bool capital : {true, false}) {
      for (const auto& [label, count] : counts) {
        if (label < kFirstEllipsis && count == 1 && (label >= 26) == capital) {
          output.push_back(label);
        }
      }
    }
    return output;
  }

  const Node& node_;
  const std::vector<int>& ranks_;
  int widest_ = 0;
};

Status Einsum(InferenceContext& context) {
  std::vector<int> ranks;
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (context.shape(i) == nullptr) return Status::Ok();
    ranks.push_back(static_cast<int>(context.shape(i)->size()));
  }
  ONNXD_ASSIGN_OR_RETURN(const EinsumEquation equation, ParseEinsum(context.node(), ranks));
  std::map<int, Dimension> extents;
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    for (size_t d = 0; d < equation.inputs[i].size(); ++d) {
      const Dimension& own = (*context.shape(i))[d];
      const auto [entry, added] = extents.emplace(equation.inputs[i][d], own);
      Dimension& known = entry->second;
      if (added || known == own || (own.known() && own.value == 1)) continue;
      if (known.known() && own.known() && known.value != 1) {
        return context.Fail("a label stands for different extents");
      }
      if (own.known()) known = own;
    }
  }
  SymbolicShape out;
  for (const int label : equation.output) {
    if (!extents.contains(label)) return context.Fail("an output label appears in no input");
    out.push_back(extents[label]);
  }
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {{"", "Einsum", Einsum}};

}  // namespace

Result<EinsumEquation> ParseEinsum(const Node& node, const std::vector<int>& ranks) {
  return Parser(node, ranks).Run();
}

std::span<const InferenceRule> EinsumRules() { return kRules; }

}  // namespace onnxd
