package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const checkTimes = "TRANSACTION_CHECK_TIMES"

var transactors sync.Map // handle to rocketmq.TransactionProducer

// foretold ends transactions as properties of their messages say. local is how one ends when it is
// sent: commit, rollback or unknown. checks is what its producer says when the broker asks, a list
// with commas whose last word holds for all further questions. A producer with a verdict says that
// instead. Every question is an event.
type foretold struct {
	handle, verdict string
}

func (f foretold) ExecuteLocalTransaction(
	message *primitive.Message,
) primitive.LocalTransactionState {
	return state(message.GetProperty("local"))
}

func (f foretold) CheckLocalTransaction(
	message *primitive.MessageExt,
) primitive.LocalTransactionState {
	emit(object{"event": "check", "handle": f.handle, "message": describeMessage(message)})
	if f.verdict != "" {
		return state(f.verdict)
	}
	verdicts := strings.Split(message.GetProperty("checks"), ",")
	times, err := strconv.Atoi(message.GetProperty(checkTimes))
	if err != nil {
		return primitive.UnknowState
	}
	return state(verdicts[min(times, len(verdicts))-1])
}

func state(verdict string) primitive.LocalTransactionState {
	switch verdict {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	default:
		return primitive.UnknowState
	}
}

func startTransactional(r *request) (object, error) {
	made, err := rocketmq.NewTransactionProducer(
		foretold{r.Handle, r.Verdict},
		producer.WithNameServer(primitive.NamesrvAddr{r.Namesrv}),
		producer.WithGroupName(r.Group),
		producer.WithInstanceName(instanceName(r)),
		producer.WithVIPChannel(r.Vip),
		producer.WithSendMsgTimeout(r.timeout()),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	transactors.Store(r.Handle, made)
	consumers.Store(r.Handle, made.Shutdown)
	return nil, nil
}

func transact(r *request) (object, error) {
	found, exists := transactors.Load(r.Producer)
	if !exists {
		return nil, fmt.Errorf("no such producer: %s", r.Producer)
	}
	sender := found.(rocketmq.TransactionProducer)
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	results := []object{}
	for _, each := range r.Messages {
		result, err := sender.SendMessageInTransaction(ctx, makeMessage(r, each))
		if err != nil {
			return nil, err
		}
		described := describeResult(result.SendResult)
		described["transactionId"] = result.TransactionID
		results = append(results, described)
	}
	return object{"results": results}, nil
}
