package inventory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Other systems are known before the watch returns, and come and go.
func TestWatchOwners(t *testing.T) {
	slice := nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})
	api := nodetest.NewAPI(slice)
	nodes := api.CoreV1().Nodes()
	first, err := nodes.Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	proc := nodetest.FakeProc(t, map[int]nodetest.HostProcess{7: nodetest.RealMIGManager})
	managed, err := labels.Parse("!other")
	require.NoError(t, err)
	node := NewNode(api, first, []hardware.Vendor{nvidia.Vendor{}}, managed)
	ctx, cancel := context.WithCancel(nodetest.Quiet(t.Context()))
	found := make(chan string, 1000)
	require.NoError(t, WatchOwners(ctx, api, node, proc, time.Millisecond, func(all Owners) { found <- all.Of(gpu.NVIDIA, "").Names() }))
	require.Equal(t, "gpu.nvidia.com_mig-manager", <-found)
	next := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-found:
				if got == want {
					return
				}
			case <-time.After(nodetest.Patience):
				require.Fail(t, "nothing is told", want)
			}
		}
	}
	require.NoError(t, api.ResourceV1().ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}))
	next("mig-manager")
	require.NoError(t, os.RemoveAll(filepath.Join(proc, "7")))
	next("")
	now := nodetest.NodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"})
	now.ObjectMeta = first.ObjectMeta
	_, err = nodes.Update(ctx, now, metav1.UpdateOptions{})
	require.NoError(t, err)
	next("device-plugin")
	now = first.DeepCopy()
	now.Labels = map[string]string{"other": ""}
	_, err = nodes.Update(ctx, now, metav1.UpdateOptions{})
	require.NoError(t, err)
	next("unmanaged")
	cancel()
	require.Error(t, WatchOwners(ctx, api, NewNode(api, first, nil, nil), proc, time.Millisecond, func(Owners) { require.Fail(t, "it has not been read") }))
}

// The API server may not have the node yet when the node starts. What is forbidden stays so.
func TestGetNode(t *testing.T) {
	away, forbidden := errors.New("away"), apierrors.NewForbidden(corev1.Resource("nodes"), nodetest.NodeName, nil)
	for name, tt := range map[string]struct {
		answers []error
		took    time.Duration
	}{
		"at once":   {[]error{nil}, 0},
		"later":     {[]error{away, away, nil}, 2 * time.Second},
		"forbidden": {[]error{forbidden}, 0},
		"never":     {[]error{away}, SyncTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, tries, begin := nodetest.NewAPI(), 0, time.Now()
				clientfake.React(&api.Fake, "get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
					err := tt.answers[min(tries, len(tt.answers)-1)]
					tries++
					return err != nil, nil, err
				})
				node, err := GetNode(t.Context(), api, nodetest.NodeName)
				assert.Equal(t, tt.answers[len(tt.answers)-1], err)
				assert.Equal(t, err == nil, node != nil && node.Name == nodetest.NodeName)
				assert.Equal(t, tt.took, time.Since(begin))
			})
		})
	}
}
