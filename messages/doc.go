// Package messages has what goes over the wire: the protobuf messages that nodes and actors send each
// other, and the frames in which named messages travel.
//
// A [Frame] is a small protobuf header and the raw bytes of one chunk of a payload:
//
//	byte 0       version
//	byte 1       0
//	bytes 2..3   length h of the header, little-endian
//	bytes 4..7   CRC-32C of bytes 0..3 and of bytes 8 to the end, little-endian
//	bytes 8..    h bytes of Header, then 0 to 7 zero bytes, then the data
//
// The data starts at a multiple of 8 bytes. A frame is written into a buffer that the sender uses
// again, and read without a copy: the data of a decoded frame is a view of what came in.
//
//	b, err := messages.AppendFrame(b[:0], &messages.Header{Body: &messages.Header_Chunk{Chunk: c}}, data)
//	frame, err := messages.DecodeFrame(b)
//
// A [Control] message, of one node to another, has the same first 8 bytes, with a zero in place of the length, and then
// the message alone.
//
// Decoding is strict: unknown versions and fields, missing parts, lengths that do not add up and wrong
// checksums are errors that wrap [ErrFrame]; no bytes make it panic or allocate more than a small
// multiple of [MaxHeader].
package messages

//go:generate protoc --go_out=. --go_opt=paths=source_relative troupe.proto
