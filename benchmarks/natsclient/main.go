// natsclient drives NATS JetStream by its own client and prints one JSON line like loadgen: messages a second and, for
// sends, latency percentiles. Every published message is acknowledged by the server after it was stored, and every
// message that is pulled is acknowledged to the server.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	addr    = flag.String("addr", "127.0.0.1:4222", "server address")
	stream  = flag.String("stream", "BENCH", "stream, created by the first send")
	mode    = flag.String("mode", "send", "send | pull (reads the stream again and again)")
	conns   = flag.Int("conns", 8, "connections")
	window  = flag.Int("window", 64, "publishes in flight per connection; messages per request of a pull")
	size    = flag.Int("size", 1024, "body bytes")
	seconds = flag.Float64("seconds", 10, "measured time")
	warm    = flag.Float64("warm", 2, "warm-up time before it")
)

var (
	measuring, stopping atomic.Bool
	messages, failures  atomic.Int64
	lock                sync.Mutex
	latencies           []int32 // microseconds
)

func main() {
	flag.Parse()
	ctx := context.Background()
	js := connect()
	subjects := []string{*stream + ".>"}
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: *stream, Subjects: subjects, Storage: jetstream.FileStorage})
	check(err)
	worker := send
	if *mode == "pull" {
		worker = pull
	}
	var wg sync.WaitGroup
	for i := range *conns {
		wg.Add(1)
		go func() { defer wg.Done(); worker(i) }()
	}
	time.Sleep(time.Duration(*warm * float64(time.Second)))
	measuring.Store(true)
	start := time.Now()
	time.Sleep(time.Duration(*seconds * float64(time.Second)))
	measuring.Store(false)
	elapsed := time.Since(start).Seconds()
	stopping.Store(true)
	wg.Wait()
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(q float64) int32 {
		if len(latencies) == 0 {
			return -1
		}
		return latencies[int(float64(len(latencies)-1)*q)]
	}
	n := messages.Load()
	line, _ := json.Marshal(map[string]any{"messages": n, "msgs_per_s": int(float64(n) / elapsed), "failed": failures.Load(),
		"p50_us": at(.5), "p99_us": at(.99), "p999_us": at(.999), "max_us": at(1)})
	fmt.Println(string(line))
}

func connect() jetstream.JetStream {
	conn, err := nats.Connect("nats://" + *addr)
	check(err)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(*window))
	check(err)
	return js
}

// send keeps the window of a connection full.
func send(id int) {
	js := connect()
	subject := fmt.Sprintf("%s.%d", *stream, id%4)
	body := make([]byte, *size)
	futures, started := make([]jetstream.PubAckFuture, *window), make([]time.Time, *window)
	var local []int32
	for slot := 0; !stopping.Load(); slot = (slot + 1) % *window {
		if future := futures[slot]; future != nil {
			select {
			case <-future.Ok():
				if measuring.Load() {
					messages.Add(1)
					local = append(local, int32(time.Since(started[slot])/time.Microsecond))
				}
			case <-future.Err():
				failures.Add(1)
			}
		}
		var err error
		started[slot] = time.Now()
		futures[slot], err = js.PublishAsync(subject, body)
		check(err)
	}
	lock.Lock()
	latencies = append(latencies, local...)
	lock.Unlock()
}

// pull reads the messages of a subject, one consumer after the other.
func pull(id int) {
	ctx := context.Background()
	js := connect()
	for !stopping.Load() {
		consumer, err := js.CreateConsumer(ctx, *stream, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: fmt.Sprintf("%s.%d", *stream, id%4), MaxAckPending: 10_000})
		check(err)
		left := consumer.CachedInfo().NumPending
		batches, err := consumer.Messages(jetstream.PullMaxMessages(*window))
		check(err)
		for ; left > 0 && !stopping.Load(); left-- {
			message, err := batches.Next()
			check(err)
			check(message.Ack())
			if measuring.Load() {
				messages.Add(1)
			}
		}
		batches.Stop()
		check(js.DeleteConsumer(ctx, *stream, consumer.CachedInfo().Name))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
