// A RocketMQ client that does what lines of standard input say; its twin in Java does the same.
//
// A line is a JSON object with id, do and the parameters of that command. Commands run at the same
// time; the answer of each is a line with its id and either ok or error. Consumers and endless
// senders also print lines with event, the moment something happened, so that a killed agent has
// told what it got.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

const lineBytesMax = 1 << 20

type object = map[string]any

// output writes whole lines only.
var output struct {
	sync.Mutex
	*json.Encoder
}

func emit(line object) {
	output.Lock()
	defer output.Unlock()
	if err := output.Encode(line); err != nil {
		fmt.Fprintln(os.Stderr, "cannot print:", err)
		os.Exit(1)
	}
}

// request holds the parameters of all commands; each takes what it needs.
type request struct {
	ID         int64             `json:"id"`
	Do         string            `json:"do"`
	Handle     string            `json:"handle"`
	Namesrv    string            `json:"namesrv"`
	Group      string            `json:"group"`
	Instance   string            `json:"instance"`
	Producer   string            `json:"producer"`
	Topic      string            `json:"topic"`
	Broker     string            `json:"broker"`
	Address    string            `json:"address"`
	Mode       string            `json:"mode"`
	Messages   []item            `json:"messages"`
	Name       string            `json:"name"`
	Queues     []int             `json:"queues"`
	QueueCount int               `json:"queueCount"`
	PauseMs    int               `json:"pauseMs"`
	TimeoutMs  int               `json:"timeoutMs"`
	Retries    *int              `json:"retries"`
	Listener   string            `json:"listener"`
	Model      string            `json:"model"`
	Expression string            `json:"expression"`
	ExprType   string            `json:"expressionType"`
	From       string            `json:"from"`
	Seek       map[string]string `json:"seek"`
	Vip        bool              `json:"vip"`
	Failures   int32             `json:"failures"`
	Failing    string            `json:"failing"`
	Verdict    string            `json:"verdict"`
	MaxTimes   *int32            `json:"maxReconsumeTimes"`
	Body       string            `json:"body"`
	Properties map[string]string `json:"properties"`
	Trace      bool              `json:"trace"`
	TraceTopic string            `json:"traceTopic"`
}

type item struct {
	Body       string            `json:"body"`
	Tags       string            `json:"tags"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Order      string            `json:"order"`
	Broker     string            `json:"broker"`
	QueueID    int               `json:"queueId"`
	DelayLevel int               `json:"delayLevel"`
}

func (r *request) timeout() time.Duration {
	if r.TimeoutMs == 0 {
		return 30 * time.Second
	}
	return time.Duration(r.TimeoutMs) * time.Millisecond
}

var commands = map[string]func(*request) (object, error){
	"producer":      startProducer,
	"transactional": startTransactional,
	"send":          send,
	"transact":      transact,
	"request":       ask,
	"reply":         reply,
	"load":          startLoad,
	"load-stop":     stopLoad,
	"push":          startPush,
	"lite":          startLite,
	"stop":          stop,
	"route":         route,
	"topics":        topics,
	"create-topic":  createTopic,
}

func answer(r *request) {
	command, known := commands[r.Do]
	if !known {
		emit(object{"id": r.ID, "error": "unknown command: " + r.Do})
		return
	}
	result, err := command(r)
	if err != nil {
		emit(object{"id": r.ID, "error": err.Error()})
		return
	}
	if result == nil {
		result = object{}
	}
	emit(object{"id": r.ID, "ok": result})
}

func main() {
	output.Encoder = json.NewEncoder(os.Stdout)
	output.SetEscapeHTML(false)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		r := &request{}
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			fmt.Fprintln(os.Stderr, "not a command:", err)
			os.Exit(2)
		}
		go answer(r)
	}
}
