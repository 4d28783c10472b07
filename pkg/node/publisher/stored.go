package publisher

import (
	"context"
	"errors"
	"fmt"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// republishPatience is how long Republish tries.
const republishPatience = 20 * time.Second

// Stored lists the driver's ResourceSlices of the node in the API server.
func (p *Publisher) Stored(ctx context.Context) ([]resourceapi.ResourceSlice, error) {
	return stored(ctx, p.Client, p.Node)
}

func stored(ctx context.Context, client kubernetes.Interface, node string) ([]resourceapi.ResourceSlice, error) {
	ctx, cancel := context.WithTimeout(ctx, inventory.SyncTimeout)
	defer cancel()
	list, err := client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   names.DriverName,
	}.String()})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	return list.Items, nil
}

// Withdraw deletes the ResourceSlices of a node. No publisher may be at work.
func Withdraw(ctx context.Context, client kubernetes.Interface, node string) error {
	published, err := stored(ctx, client, node)
	for i := range published {
		err = errors.Join(err, deleteSlice(ctx, client, &published[i]))
	}
	return err
}

func deleteSlice(ctx context.Context, client kubernetes.Interface, s *resourceapi.ResourceSlice) error {
	ctx, cancel := context.WithTimeout(ctx, inventory.SyncTimeout)
	defer cancel()
	err := client.ResourceV1().ResourceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ResourceSlice %s of pool %s: %w", s.Name, s.Spec.Pool.Name, err)
	}
	return nil
}

// Republish publishes again until the API server has all slices: a kubelet that starts
// deletes them before it registers the plugin.
func (p *Publisher) Republish(ctx context.Context) {
	if !p.IsMine() {
		return // another plugin keeps them
	}
	ctx, cancel := context.WithTimeout(ctx, republishPatience)
	defer cancel()
	_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		p.Publish(ctx)
		published, err := p.Stored(ctx)
		return err == nil && len(published) == p.sliceCount(), nil
	})
}
