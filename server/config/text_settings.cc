#include "server/config/text_settings.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

const std::vector<OptionKey<TextSettings>>& TextSettingsKeys() {
  using T = TextSettings;
  static const std::vector<OptionKey<T>> keys = {
      TextKey("tokenizer", &T::tokenizer),
      NumberKey("max_length", &T::max_length, 0, 1'000'000),
      SwitchKey("pairs", &T::pairs),
      TextKey("pooling", &T::pooling, {"", "mean", "cls", "last"}),
      SwitchKey("normalize", &T::normalize),
  };
  return keys;
}

Status CheckTexts(const TextSettings& texts) {
  if (!texts.active()) {
    return texts == TextSettings() ? Status::Ok() : InvalidArgument("texts: they need a tokenizer");
  }
  if (texts.tokenizer.find('/') != std::string::npos || texts.tokenizer[0] == '.') {
    return InvalidArgument(StrCat("texts: tokenizer '", texts.tokenizer,
                                  "' must be the name of a file beside the model's"));
  }
  if (texts.normalize && texts.pooling.empty() && !texts.finds_files()) {
    return InvalidArgument("texts: 'normalize' needs 'pooling'");
  }
  return Status::Ok();
}

}  // namespace onnxd
