/* The interface between the kernels of images (ImageDecoder, DecodeImage, EncodeImage) and the
 * library with the codecs, which is opened when a model first decodes an image: a daemon without
 * such models loads no codec. */
#ifndef ONNXD_IMAGE_DECODER_H_
#define ONNXD_IMAGE_DECODER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct OnnxdImage {
  int64_t height, width;
  uint8_t* pixels; /* [height, width, 3], red first; from malloc, freed by the caller */
} OnnxdImage;

/* Decodes BMP, JPEG, JPEG 2000, PNG, PNM (P1 to P6), TIFF or WebP, told by their first bytes; 8
 * bits a channel, without transparency. Returns 0, or 1 with the reason in `error` (cut to
 * error_size, ends with a zero). Images of more than max_pixels are refused before memory is taken.
 * Any thread. */
typedef int32_t (*OnnxdDecodeImage)(const uint8_t* data, size_t size, int64_t max_pixels,
                                    OnnxdImage* image, char* error, size_t error_size);

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int32_t
onnxd_decode_image(const uint8_t* data, size_t size, int64_t max_pixels, OnnxdImage* image,
                   char* error, size_t error_size);

typedef struct OnnxdEncoded {
  size_t size;
  uint8_t* bytes; /* from malloc, freed by the caller */
} OnnxdEncoded;

/* Encodes pixels [height, width, 3], red first: as JPEG (quality 95, colours at half the
 * resolution) where `jpeg` is not 0, else as PNG. Returns as onnxd_decode_image. Any thread. */
typedef int32_t (*OnnxdEncodeImage)(const uint8_t* pixels, int64_t height, int64_t width,
                                    int32_t jpeg, OnnxdEncoded* encoded, char* error,
                                    size_t error_size);

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
int32_t
onnxd_encode_image(const uint8_t* pixels, int64_t height, int64_t width, int32_t jpeg,
                   OnnxdEncoded* encoded, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif

#endif /* ONNXD_IMAGE_DECODER_H_ */
