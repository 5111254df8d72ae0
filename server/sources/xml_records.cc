#include "server/sources/xml_records.h"

#include <expat.h>

#include <memory>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

struct Reader {
  const std::string& record;
  XmlRecords read;
  bool inside = false;
  std::string text;

  static void Begin(void* self, const char* name, const char**) {
    auto& reader = *static_cast<Reader*>(self);
    if (name == reader.record) {
      reader.inside = true;
      reader.read.records.emplace_back();
    }
    reader.text.clear();
  }
  static void End(void* self, const char* name) {
    auto& reader = *static_cast<Reader*>(self);
    if (name == reader.record) {
      reader.inside = false;
    } else {
      auto& to = reader.inside ? reader.read.records.back() : reader.read.others;
      to.emplace(name, reader.text);
    }
    reader.text.clear();
  }
  static void Text(void* self, const char* text, int size) {
    static_cast<Reader*>(self)->text.append(text, static_cast<size_t>(size));
  }
};

}  // namespace

Result<XmlRecords> ReadXml(const std::string& text, const std::string& record) {
  Reader reader{record, {}, false, ""};
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate(nullptr), &XML_ParserFree);
  if (parser == nullptr) return ResourceExhausted("no memory for XML");
  XML_SetUserData(parser.get(), &reader);
  XML_SetElementHandler(parser.get(), &Reader::Begin, &Reader::End);
  XML_SetCharacterDataHandler(parser.get(), &Reader::Text);
  if (XML_Parse(parser.get(), text.data(), static_cast<int>(text.size()), 1) != XML_STATUS_OK) {
    return InvalidArgument(StrCat("no XML: ", XML_ErrorString(XML_GetErrorCode(parser.get())),
                                  " in line ", XML_GetCurrentLineNumber(parser.get())));
  }
  return std::move(reader.read);
}

}  // namespace onnxd
