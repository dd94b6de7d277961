package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const adminTimeout = 30 * time.Second

func withAdmin(r *request, ask func(context.Context, admin.Admin) (object, error)) (object, error) {
	made, err := admin.NewAdmin(
		admin.WithResolver(primitive.NewPassthroughResolver([]string{r.Namesrv})))
	if err != nil {
		return nil, err
	}
	defer made.Close()
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	return ask(ctx, made)
}

// route tells the queues that a producer would use, which is what this client shows of a route.
func route(r *request) (object, error) {
	return withAdmin(r, func(ctx context.Context, asked admin.Admin) (object, error) {
		queues, err := asked.FetchPublishMessageQueues(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		items := make([]object, len(queues))
		for i, queue := range queues {
			items[i] = object{"broker": queue.BrokerName, "queueId": queue.QueueId}
		}
		return object{"publish": items}, nil
	})
}

func topics(r *request) (object, error) {
	return withAdmin(r, func(ctx context.Context, asked admin.Admin) (object, error) {
		list, err := asked.FetchAllTopicList(ctx)
		if err != nil {
			return nil, err
		}
		return object{"topics": list.TopicList}, nil
	})
}

func createTopic(r *request) (object, error) {
	return withAdmin(r, func(ctx context.Context, asked admin.Admin) (object, error) {
		return nil, asked.CreateTopic(ctx,
			admin.WithTopicCreate(r.Topic),
			admin.WithBrokerAddrCreate(r.Address),
			admin.WithReadQueueNums(r.QueueCount),
			admin.WithWriteQueueNums(r.QueueCount),
		)
	})
}
