package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const answerTimeout = 60 * time.Second

var (
	producers sync.Map // handle to rocketmq.Producer
	loads     sync.Map // handle to *load
	instances atomic.Int64
)

// instanceName gives every client its own connections, as programs of their own would have. One that
// is to be the same client as one before is given a name.
func instanceName(r *request) string {
	if r.Instance != "" {
		return r.Instance
	}
	return fmt.Sprintf("agent-%d-%d", os.Getpid(), instances.Add(1))
}

// selector sends to the queue that a message names, then by its sharding key, then in turn.
type selector struct {
	hash, turn producer.QueueSelector
}

func (s selector) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	switch {
	case message.Queue != nil:
		return message.Queue
	case message.GetShardingKey() != "":
		return s.hash.Select(message, queues, last)
	default:
		return s.turn.Select(message, queues, last)
	}
}

func startProducer(r *request) (object, error) {
	retries := 2
	if r.Retries != nil {
		retries = *r.Retries
	}
	options := []producer.Option{
		producer.WithNameServer(primitive.NamesrvAddr{r.Namesrv}),
		producer.WithGroupName(r.Group),
		producer.WithInstanceName(instanceName(r)),
		producer.WithRetry(retries),
		producer.WithVIPChannel(r.Vip),
		producer.WithSendMsgTimeout(r.timeout()),
		producer.WithQueueSelector(
			selector{producer.NewHashQueueSelector(), producer.NewRoundRobinQueueSelector()}),
	}
	if r.Trace {
		options = append(options, producer.WithTrace(traceConfig(r)))
	}
	made, err := rocketmq.NewProducer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	producers.Store(r.Handle, made)
	return nil, nil
}

func findProducer(handle string) (rocketmq.Producer, error) {
	found, exists := producers.Load(handle)
	if !exists {
		return nil, fmt.Errorf("no such producer: %s", handle)
	}
	return found.(rocketmq.Producer), nil
}

func send(r *request) (object, error) {
	sender, err := findProducer(r.Producer)
	if err != nil {
		return nil, err
	}
	messages := make([]*primitive.Message, len(r.Messages))
	for i, each := range r.Messages {
		messages[i] = makeMessage(r, each)
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	results := []object{}
	switch r.Mode {
	case "batch":
		result, err := sender.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		results = append(results, describeResult(result))
	case "async":
		return sendAsync(ctx, sender, messages)
	case "oneway":
		for _, message := range messages {
			if err := sender.SendOneWay(ctx, message); err != nil {
				return nil, err
			}
		}
	case "sync", "ordered", "queue":
		for _, message := range messages {
			result, err := sender.SendSync(ctx, message)
			if err != nil {
				return nil, err
			}
			results = append(results, describeResult(result))
		}
	default:
		return nil, fmt.Errorf("unknown mode: %s", r.Mode)
	}
	return object{"results": results}, nil
}

func sendAsync(
	ctx context.Context, sender rocketmq.Producer, messages []*primitive.Message,
) (object, error) {
	type outcome struct {
		position int
		result   *primitive.SendResult
		err      error
	}
	outcomes := make(chan outcome, len(messages))
	for position, message := range messages {
		position := position
		done := func(_ context.Context, result *primitive.SendResult, err error) {
			outcomes <- outcome{position, result, err}
		}
		if err := sender.SendAsync(ctx, done, message); err != nil {
			return nil, err
		}
	}
	results := make([]object, len(messages))
	for range messages {
		select {
		case each := <-outcomes:
			if each.err != nil {
				return nil, each.err
			}
			results[each.position] = describeResult(each.result)
		case <-ctx.Done():
			return nil, fmt.Errorf("no answer within %s", answerTimeout)
		}
	}
	return object{"results": results}, nil
}

func makeMessage(r *request, each item) *primitive.Message {
	message := primitive.NewMessage(r.Topic, []byte(each.Body))
	if each.Tags != "" {
		message.WithTag(each.Tags)
	}
	if len(each.Keys) > 0 {
		message.WithKeys(each.Keys)
	}
	for name, value := range each.Properties {
		message.WithProperty(name, value)
	}
	if each.DelayLevel > 0 {
		message.WithDelayTimeLevel(each.DelayLevel)
	}
	switch r.Mode {
	case "ordered":
		message.WithShardingKey(each.Order)
	case "queue":
		message.Queue = &primitive.MessageQueue{
			Topic: r.Topic, BrokerName: each.Broker, QueueId: each.QueueID,
		}
	}
	return message
}

func describeResult(result *primitive.SendResult) object {
	status := fmt.Sprintf("status %d", result.Status)
	if result.Status == primitive.SendOK {
		status = "SEND_OK"
	}
	return object{
		"status":      status,
		"brokerName":  result.MessageQueue.BrokerName,
		"queueId":     result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset,
		"msgId":       result.MsgID,
		"offsetMsgId": result.OffsetMsgID,
	}
}

// load sends, for each queue by one goroutine, <name>/<queue>/<number> with numbers from 0 on, the
// next only after the one before was acknowledged. A message that fails is sent again, so an
// unacknowledged one may be stored twice. Every acknowledgement is an event.
type load struct {
	request  *request
	sender   rocketmq.Producer
	stopping atomic.Bool
	failure  atomic.Value
	running  sync.WaitGroup
}

func startLoad(r *request) (object, error) {
	sender, err := findProducer(r.Producer)
	if err != nil {
		return nil, err
	}
	l := &load{request: r, sender: sender}
	loads.Store(r.Handle, l)
	for _, queue := range r.Queues {
		l.running.Add(1)
		go l.sendAll(queue)
	}
	return nil, nil
}

func stopLoad(r *request) (object, error) {
	found, exists := loads.LoadAndDelete(r.Handle)
	if !exists {
		return nil, fmt.Errorf("no such load: %s", r.Handle)
	}
	l := found.(*load)
	l.stopping.Store(true)
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil, nil
	case <-time.After(answerTimeout):
		return nil, fmt.Errorf("not acknowledged, the last failure was %v", l.failure.Load())
	}
}

func (l *load) sendAll(queue int) {
	defer l.running.Done()
	for number := 0; !l.stopping.Load(); number++ {
		body := fmt.Sprintf("%s/%d/%d", l.request.Name, queue, number)
		for tries := 1; !l.sendOne(queue, body, number, tries); tries++ {
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Duration(l.request.PauseMs) * time.Millisecond)
	}
}

func (l *load) sendOne(queue int, body string, number, tries int) bool {
	message := primitive.NewMessage(l.request.Topic, []byte(body))
	message.Queue = &primitive.MessageQueue{
		Topic: l.request.Topic, BrokerName: l.request.Broker, QueueId: queue,
	}
	result, err := l.sender.SendSync(context.Background(), message)
	if err == nil && result.Status != primitive.SendOK {
		err = fmt.Errorf("%s", result)
	}
	if err != nil {
		l.failure.Store(err.Error())
		return false
	}
	event := describeResult(result)
	event["event"] = "ack"
	event["handle"] = l.request.Handle
	event["body"] = body
	event["number"] = number
	event["tries"] = tries
	emit(event)
	return true
}
