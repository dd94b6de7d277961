package main

// The loads: senders that keep a window full, senders on a schedule, and readers.

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	unansweredMax = 4096 // sends of a connection on schedule, at most
	unansweredAll = 32_768
	buffersAll    = 8 << 20
)

// share divides what all connections may have, within bounds.
func share(all, least, most int) int {
	return min(max(all / *conns, least), most)
}

// sendFrames makes one ready-made frame a slot; the slot number is the request's opaque.
func sendFrames(id, slots int) [][]byte {
	body := make([]byte, *size)
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	frames := make([][]byte, slots)
	for slot := range frames {
		number := id*slots + slot
		code, isBatch, properties, content := sendMessageV2, "false", propertiesOf(number), body
		if *batch > 1 {
			code, isBatch, properties = sendBatchMessage, "true", ""
			content = encodeBatch(body, number**batch)
		}
		name := *topic
		if *topics > 1 {
			name = fmt.Sprintf("%s%05d", *topic, number**topics/(*conns*slots))
		}
		frames[slot] = frame(code, slot, map[string]string{
			"a": *group, "b": name, "c": "TBW102", "d": strconv.Itoa(*queues), "e": strconv.Itoa((id + slot) % *queues),
			"f": "0", "g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": properties, "j": "0",
			"k": "false", "m": isBatch, "n": "broker-a"}, content)
	}
	return frames
}

// stored counts an acknowledged request and keeps its latency.
func stored(local []int32, latency time.Duration) []int32 {
	sent.Add(int64(*batch))
	if !measuring.Load() {
		return local
	}
	if *mode == "send" {
		messages.Add(int64(*batch))
	}
	return append(local, int32(latency/time.Microsecond))
}

// paced sends on a schedule and never waits for answers, so a stall of the broker shows in the latency of every
// send that was due meanwhile.
func paced(id int) {
	conn := dial()
	defer conn.Close()
	slots := share(unansweredAll, 64, unansweredMax)
	frames, due := sendFrames(id, slots), make([]atomic.Int64, slots)
	buffer := share(buffersAll, 8<<10, 256<<10)
	go func() {
		w := bufio.NewWriterSize(conn, buffer)
		interval := time.Duration(float64(time.Second) * float64(*conns**batch) / *rate)
		next := time.Now().Add(interval * time.Duration(id) / time.Duration(*conns))
		for slot := 0; !stopping.Load(); slot = (slot + 1) % slots {
			if wait := time.Until(next); wait > 0 {
				w.Flush()
				time.Sleep(wait)
			}
			if due[slot].Swap(next.UnixNano()) != 0 {
				lost(fmt.Errorf("%d sends without an answer", slots))
				conn.Close()
				return
			}
			w.Write(frames[slot])
			next = next.Add(interval)
		}
		conn.SetReadDeadline(time.Now().Add(time.Second)) // nothing may be left to read
	}()
	r := bufio.NewReaderSize(conn, buffer)
	var local []int32
	var buf []byte
	for !stopping.Load() {
		var resp response
		var err error
		if resp, buf, err = read(r, buf); err != nil {
			lost(err)
			break
		}
		slot := resp.opaque()
		if slot < 0 || slot >= slots {
			failed(resp)
			break
		}
		begin := due[slot].Swap(0)
		if resp.code() != 0 {
			failed(resp)
		} else {
			local = stored(local, time.Duration(time.Now().UnixNano()-begin))
		}
	}
	keep(local)
}

// send keeps the window of a connection full.
func send(id int) {
	conn := dial()
	defer conn.Close()
	frames, started := sendFrames(id, *window), make([]time.Time, *window)
	w, r := bufio.NewWriterSize(conn, 256<<10), bufio.NewReaderSize(conn, 256<<10)
	for slot := range frames {
		started[slot] = time.Now()
		w.Write(frames[slot])
	}
	w.Flush()
	var local []int32
	var buf []byte
	for !stopping.Load() {
		var resp response
		var err error
		if resp, buf, err = read(r, buf); err != nil {
			lost(err)
			break
		}
		slot := resp.opaque()
		if slot < 0 || slot >= len(frames) {
			failed(resp)
			break
		}
		if resp.code() != 0 {
			failed(resp)
		} else {
			local = stored(local, time.Since(started[slot]))
		}
		if *mode == "both" && isAhead() {
			w.Flush()
			for isAhead() && !stopping.Load() {
				time.Sleep(time.Millisecond)
			}
		}
		started[slot] = time.Now()
		w.Write(frames[slot])
		if r.Buffered() < 8 {
			w.Flush()
		}
	}
	keep(local)
}

// What -mode both has stored, and what each group has got.
var (
	sent atomic.Int64
	got  [1024]atomic.Int64
)

// isAhead tells whether the slowest group is too far behind.
func isAhead() bool {
	stored := sent.Load()
	for i := range *groups {
		if stored-got[i].Load() > *lag {
			return true
		}
	}
	return false
}

// pull reads a queue with the only group.
func pull(queue int) { consume(queue, *group, &got[0]) }

// follow reads a queue with one of many groups.
func follow(number int) {
	for sent.Load() == 0 && !stopping.Load() {
		time.Sleep(time.Millisecond) // the topic does not exist yet
	}
	which := number / *queues
	consume(number%*queues, fmt.Sprintf("%s_%d", *group, which), &got[which])
}

func consume(queue int, group string, got *atomic.Int64) {
	conn := dial()
	defer conn.Close()
	r := bufio.NewReaderSize(conn, 1<<20)
	var local []int32
	var buf []byte
	offset := int64(0)
	for !stopping.Load() {
		begin := time.Now()
		conn.Write(frame(pullMessage, 1, map[string]string{
			"consumerGroup": group, "topic": *topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.FormatInt(offset, 10),
			"maxMsgNums": strconv.Itoa(*pullMax), "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "1000",
			"subscription": *filter, "subVersion": "0", "expressionType": *kind, "brokerName": "broker-a"}, nil))
		var resp response
		var err error
		if resp, buf, err = read(r, buf); err != nil {
			lost(err)
			break
		}
		next, end := resp.offsets()
		code := resp.code()
		n := 0
		switch {
		case code == 0:
			n = countRecords(resp.body)
		case code == pullNotFound || code == pullRetryImmediately || code == pullOffsetMoved:
		default:
			n = -1
		}
		if n < 0 {
			failed(resp)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if *filter != "*" && next > offset {
			n = int(next - offset)
		}
		got.Add(int64(n))
		if n > 0 && measuring.Load() {
			messages.Add(int64(n))
			if *mode != "both" {
				local = append(local, int32(time.Since(begin)/time.Microsecond))
			}
		}
		if offset = max(next, 0); *mode == "pull" && (code == pullNotFound || code == pullOffsetMoved || end >= 0 && next >= end) {
			if *once {
				break
			}
			offset = 0 // without waiting at the end for what is never sent
		}
	}
	keep(local)
}

func dial() net.Conn {
	conn, err := net.Dial("tcp", *addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return conn
}
