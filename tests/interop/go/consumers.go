package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pollTimeout = 200 * time.Millisecond

var consumers sync.Map // handle to the function that stops it

func consumerOptions(r *request) ([]consumer.Option, error) {
	options := []consumer.Option{
		consumer.WithNameServer(primitive.NamesrvAddr{r.Namesrv}),
		consumer.WithGroupName(r.Group),
		consumer.WithInstance(instanceName(r)),
		consumer.WithVIPChannel(r.Vip),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		// A restarted broker knows no locks; orderly consumers ask for them again so often.
		consumer.WithRebalanceLockInterval(time.Second),
	}
	switch r.Model {
	case "", "CLUSTERING":
		options = append(options, consumer.WithConsumerModel(consumer.Clustering))
	case "BROADCASTING":
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	default:
		return nil, fmt.Errorf("unknown model: %s", r.Model)
	}
	if r.From == "CONSUME_FROM_LAST_OFFSET" {
		options = append(options, consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	}
	return options, nil
}

func expression(r *request) consumer.MessageSelector {
	if r.Expression == "" {
		return consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	}
	if r.ExprType == string(consumer.SQL92) {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: r.Expression}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: r.Expression}
}

func startPush(r *request) (object, error) {
	options, err := consumerOptions(r)
	if err != nil {
		return nil, err
	}
	options = append(options, consumer.WithConsumerOrder(r.Listener == "orderly"))
	if r.MaxTimes != nil {
		options = append(options, consumer.WithMaxReconsumeTimes(*r.MaxTimes))
	}
	if r.Trace {
		options = append(options, consumer.WithTrace(traceConfig(r)))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	err = made.Subscribe(r.Topic, expression(r),
		func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			emitMessages(r.Handle, messages)
			return consumed(ctx, r, messages), nil
		})
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	consumers.Store(r.Handle, made.Shutdown)
	return nil, nil
}

// consumed says whether messages have failed as often as they should, to be tried again after the
// shortest delay.
func consumed(
	ctx context.Context, r *request, messages []*primitive.MessageExt,
) consumer.ConsumeResult {
	for _, message := range messages {
		if message.ReconsumeTimes < r.Failures &&
			strings.HasPrefix(string(message.Body), r.Failing) {
			if r.Listener == "orderly" {
				return consumer.SuspendCurrentQueueAMoment
			}
			if concurrent, exists := primitive.GetConcurrentlyCtx(ctx); exists {
				concurrent.DelayLevelWhenNextConsume = 1
			}
			return consumer.ConsumeRetryLater
		}
	}
	return consumer.ConsumeSuccess
}

func startLite(r *request) (object, error) {
	options, err := consumerOptions(r)
	if err != nil {
		return nil, err
	}
	made, err := rocketmq.NewPullConsumer(options...)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(r.Topic, expression(r)); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if len(r.Seek) > 0 {
			pullAll(ctx, made, r)
		} else {
			pollAll(ctx, made, r.Handle)
		}
	}()
	consumers.Store(r.Handle, func() error {
		cancel()
		<-ended // What was printed is acknowledged before the consumer commits for the last time.
		return made.Shutdown()
	})
	return nil, nil
}

func pollAll(ctx context.Context, from rocketmq.PullConsumer, handle string) {
	for ctx.Err() == nil {
		found, err := from.Poll(ctx, pollTimeout)
		if err != nil {
			continue
		}
		emitMessages(handle, found.GetMsgList())
		from.ACK(ctx, found, consumer.ConsumeSuccess)
	}
}

// pullAll reads the queues from the offsets that the command names.
func pullAll(ctx context.Context, from rocketmq.PullConsumer, r *request) {
	next := map[int]int64{}
	for queue, offset := range r.Seek {
		var id int
		var start int64
		fmt.Sscan(queue, &id)
		fmt.Sscan(offset, &start)
		next[id] = start
	}
	for ctx.Err() == nil {
		for id, offset := range next {
			queue := &primitive.MessageQueue{Topic: r.Topic, BrokerName: r.Broker, QueueId: id}
			found, err := from.PullFrom(ctx, queue, offset, 32)
			if err != nil {
				fmt.Fprintln(os.Stderr, "pull from", offset, "of", queue, "failed:", err)
				return
			}
			if found.Status == primitive.PullFound {
				emitMessages(r.Handle, found.GetMessageExts())
			}
			next[id] = found.NextBeginOffset
		}
		time.Sleep(pollTimeout / 10)
	}
}

func stop(r *request) (object, error) {
	if found, exists := producers.LoadAndDelete(r.Handle); exists {
		return nil, found.(rocketmq.Producer).Shutdown()
	}
	found, exists := consumers.LoadAndDelete(r.Handle)
	if !exists {
		return nil, fmt.Errorf("no such handle: %s", r.Handle)
	}
	return nil, found.(func() error)()
}

func emitMessages(handle string, messages []*primitive.MessageExt) {
	items := make([]object, len(messages))
	for i, message := range messages {
		items[i] = describeMessage(message)
	}
	emit(object{"event": "messages", "handle": handle, "messages": items})
}

func describeMessage(message *primitive.MessageExt) object {
	described := object{
		"topic":          message.Topic,
		"queueOffset":    message.QueueOffset,
		"physicalOffset": message.CommitLogOffset,
		"storeSize":      message.StoreSize,
		"body":           string(message.Body),
		"tags":           message.GetTags(),
		"keys":           message.GetKeys(),
		"properties":     message.GetProperties(),
		"reconsumeTimes": message.ReconsumeTimes,
		"bornTimestamp":  message.BornTimestamp,
		"storeTimestamp": message.StoreTimestamp,
		"msgId":          message.MsgId,
		"offsetMsgId":    message.OffsetMsgId,
		"queueId":        -1,
	}
	if message.Queue != nil {
		described["queueId"] = message.Queue.QueueId
	}
	return described
}
