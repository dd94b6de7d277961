package main

// The remoting protocol: frames, headers in both codecs, batches and stored records.

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// countRecords walks stored records by their leading size; -1 if they do not add up to the body.
func countRecords(body []byte) (n int) {
	for len(body) >= 4 {
		size := int(binary.BigEndian.Uint32(body))
		if size < 91 || size > len(body) {
			return -1
		}
		body, n = body[size:], n+1
	}
	if len(body) != 0 {
		return -1
	}
	return n
}

// encodeBatch packs the messages of one request, the first of which has this number.
func encodeBatch(body []byte, first int) (out []byte) {
	for i := range *batch {
		properties := propertiesOf(first + i)
		out = binary.BigEndian.AppendUint32(out, uint32(4+4+4+4+4+len(body)+2+len(properties)))
		out = append(out, make([]byte, 12)...) // magic, CRC and flag
		out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
		out = append(out, body...)
		out = binary.BigEndian.AppendUint16(out, uint16(len(properties)))
		out = append(out, properties...)
	}
	return out
}

// propertiesOf returns those of the message with this number.
func propertiesOf(number int) string {
	if *hitEvery > 0 && number%*hitEvery == 0 {
		return *hitProps
	}
	return *props
}

func frame(code, opaque int, fields map[string]string, body []byte) []byte {
	var head []byte
	if *codec == "binary" {
		var ext []byte
		for k, v := range fields {
			ext = append(binary.BigEndian.AppendUint16(ext, uint16(len(k))), k...)
			ext = append(binary.BigEndian.AppendUint32(ext, uint32(len(v))), v...)
		}
		head = binary.BigEndian.AppendUint16(head, uint16(code))
		head = append(head, 0)                          // language: JAVA
		head = binary.BigEndian.AppendUint16(head, 493) // client version
		head = binary.BigEndian.AppendUint32(head, uint32(opaque))
		head = append(head, make([]byte, 8)...) // flag, remark length
		head = append(binary.BigEndian.AppendUint32(head, uint32(len(ext))), ext...)
	} else {
		head, _ = json.Marshal(map[string]any{"code": code, "language": "JAVA", "version": 493, "opaque": opaque, "flag": 0,
			"serializeTypeCurrentRPC": "JSON", "extFields": fields})
	}
	out := binary.BigEndian.AppendUint32(nil, uint32(4+len(head)+len(body)))
	kind := uint32(0)
	if *codec == "binary" {
		kind = 1
	}
	out = binary.BigEndian.AppendUint32(out, kind<<24|uint32(len(head)))
	return append(append(out, head...), body...)
}

type response struct {
	binary     bool
	head, body []byte
}

func read(r *bufio.Reader, buf []byte) (response, []byte, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return response{}, buf, err
	}
	total, head := int(binary.BigEndian.Uint32(lengths[:]))-4, int(binary.BigEndian.Uint32(lengths[4:])&0xffffff)
	if total < head {
		return response{}, buf, fmt.Errorf("frame of %d bytes with a header of %d", total, head)
	}
	if cap(buf) < total {
		buf = make([]byte, 2*total)
	}
	b := buf[:total]
	_, err := io.ReadFull(r, b)
	return response{lengths[4] == 1, b[:head], b[head:]}, buf, err
}

func (r response) code() int {
	if r.binary {
		return int(binary.BigEndian.Uint16(r.head))
	}
	return number(r.head, `"code":`)
}

func (r response) opaque() int {
	if r.binary {
		return int(int32(binary.BigEndian.Uint32(r.head[5:])))
	}
	return number(r.head, `"opaque":`)
}

// offsets returns where a pull goes on and where its queue ends; -1 for one that is missing.
func (r response) offsets() (next, end int64) {
	parse := func(text string) int64 {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		return -1
	}
	if !r.binary {
		var head struct {
			ExtFields struct{ NextBeginOffset, MaxOffset string }
		}
		json.Unmarshal(r.head, &head)
		return parse(head.ExtFields.NextBeginOffset), parse(head.ExtFields.MaxOffset)
	}
	next, end = -1, -1
	rest := r.head[13:]
	rest = rest[4+binary.BigEndian.Uint32(rest):][4:]
	for len(rest) > 0 {
		k := rest[2 : 2+binary.BigEndian.Uint16(rest)]
		rest = rest[2+len(k):]
		v := rest[4 : 4+binary.BigEndian.Uint32(rest)]
		rest = rest[4+len(v):]
		switch string(k) {
		case "nextBeginOffset":
			next = parse(string(v))
		case "maxOffset":
			end = parse(string(v))
		}
	}
	return next, end
}

// number reads the integer that follows key in a JSON header, without decoding the rest.
func number(head []byte, key string) int {
	i := strings.Index(string(head), key)
	if i < 0 {
		return -1
	}
	n := 0
	for _, c := range strings.TrimLeft(string(head[i+len(key):]), " ") {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}
