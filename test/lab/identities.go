package lab

import (
	"context"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// asPlugin is a configuration with the rights of the plugin on a node: its token names the node
// as that of a pod does.
func (c *Cluster) asPlugin(node string) *rest.Config {
	return c.as("tranche-kubelet-plugin", map[string][]string{"authentication.kubernetes.io/node-name": {node}})
}

// asController is a configuration with the rights of the controller.
func (c *Cluster) asController() *rest.Config { return c.as("tranche-controller", nil) }

func (c *Cluster) as(account string, extra map[string][]string) *rest.Config {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + Namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace, "system:authenticated"},
		Extra:    extra,
	}
	return config
}

// awaitPolicies waits until the API server refuses what the chart's policies forbid, some time
// after they were created. It loads all of them at once.
func (c *Cluster) awaitPolicies(ctx context.Context) error {
	plugin, err := kubernetes.NewForConfig(c.asPlugin("one-node"))
	if err != nil {
		return err
	}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "of-another-node"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: names.DriverName, NodeName: ptr.To("another-node"),
			Pool: resourceapi.ResourcePool{Name: "another-node", Generation: 1, ResourceSliceCount: 1},
		},
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := plugin.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err), nil
	})
}
