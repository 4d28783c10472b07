package cluster

import (
	"context"
	"fmt"
	"time"
)

// pod is what the launcher reads of a Pod.
type pod struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		ContainerStatuses []struct {
			State struct {
				Running *struct {
					StartedAt time.Time `json:"startedAt"`
				} `json:"running"`
			} `json:"state"`
		} `json:"containerStatuses"`
	} `json:"status"`
}

type podList struct {
	Items []pod `json:"items"`
}

func (a *api) podsOf(ctx context.Context, node string) ([]pod, error) {
	var list podList
	err := a.get(ctx, "/api/v1/pods?fieldSelector=spec.nodeName="+node, &list)
	return list.Items, err
}

// kubeletWorks is nil when a kubelet knows all pods that its node has: it
// answers that it is healthy long before that.
func (a *api) kubeletWorks(ctx context.Context, node string) error {
	pods, err := a.podsOf(ctx, node)
	if err != nil {
		return err
	}
	var known podList
	if err := a.get(ctx, "/api/v1/nodes/"+node+"/proxy/pods", &known); err != nil {
		return err
	}
	if len(known.Items) < len(pods) {
		return fmt.Errorf("it knows %d pods of %d", len(known.Items), len(pods))
	}
	return nil
}

// podsReportedSince is nil when no pod of a node is said to run that has not
// been started since the given time. After a reboot that takes the kubelet a
// few seconds.
func (a *api) podsReportedSince(ctx context.Context, node string, since time.Time) error {
	pods, err := a.podsOf(ctx, node)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if pod.runsSinceBefore(since) {
			return fmt.Errorf("pod %s still has its status from before", pod.Metadata.Name)
		}
	}
	return nil
}

func (p pod) runsSinceBefore(when time.Time) bool {
	for _, container := range p.Status.ContainerStatuses {
		running := container.State.Running
		if running != nil && running.StartedAt.Before(when.Truncate(time.Second)) { // statuses count in seconds
			return true
		}
	}
	return false
}
