package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// ask sends a message and waits for the answer to it. The library calls back twice, and not in time
// when there is no answer.
func ask(r *request) (object, error) {
	asker, err := findProducer(r.Producer)
	if err != nil {
		return nil, err
	}
	message := makeMessage(r, item{Body: r.Body})
	var answer *primitive.Message
	switch r.Mode {
	case "sync":
		answer, err = asker.Request(context.Background(), r.timeout(), message)
	case "async":
		answers := make(chan *primitive.Message, 2)
		failures := make(chan error, 2)
		called := func(_ context.Context, answer *primitive.Message, err error) {
			if err != nil {
				failures <- err
			} else {
				answers <- answer
			}
		}
		if err = asker.RequestAsync(context.Background(), r.timeout(), called, message); err != nil {
			return nil, err
		}
		select {
		case answer = <-answers:
		case err = <-failures:
		case <-time.After(r.timeout() + answerTimeout):
			err = fmt.Errorf("the callback was not called")
		}
	default:
		err = fmt.Errorf("unknown mode: %s", r.Mode)
	}
	if err != nil {
		return nil, err
	}
	return object{
		"body":       string(answer.Body),
		"topic":      answer.Topic,
		"properties": answer.GetProperties(),
	}, nil
}

// reply answers the request whose properties a consumer printed.
func reply(r *request) (object, error) {
	sender, err := findProducer(r.Producer)
	if err != nil {
		return nil, err
	}
	request := &primitive.MessageExt{}
	request.WithProperties(r.Properties)
	// The library takes the body for properties and leaves the message without one.
	answer, err := consumer.CreateReplyMessage(request, nil)
	if err != nil {
		return nil, err
	}
	answer.Body = []byte(r.Body)
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	result, err := sender.SendSync(ctx, answer)
	if err != nil {
		return nil, err
	}
	return describeResult(result), nil
}

// traceConfig has the client tell the servers that it works with what it does.
func traceConfig(r *request) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic:   r.TraceTopic,
		GroupName:    r.Group,
		Access:       primitive.Local,
		NamesrvAddrs: []string{r.Namesrv},
	}
}
