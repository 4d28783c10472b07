package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cdi"
	"github.com/tranche-dev/tranche/pkg/claim"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/kubefake"
)

// rig is the claims' part of the plugin behind the kubelet's socket, on
// hardware and an API server that answer at once: what is left is its own time.
type rig struct {
	*kubelet
	api    *fake.Clientset
	claims *claim.Manager
	helper *kubeletplugin.Helper
	// records is the ledger's folder.
	records string
}

// newRig starts a plugin with an empty ledger.
func (b *bench) newRig(ctx context.Context, hardware *memory) (*rig, error) {
	dir, err := os.MkdirTemp(b.dir, "rig")
	if err != nil {
		return nil, err
	}
	r := &rig{api: kubefake.New(), records: filepath.Join(dir, "claims")}
	book, _, err := ledger.Open(r.records)
	if err != nil {
		return nil, err
	}
	files, err := cdi.Open(filepath.Join(dir, "cdi"))
	if err != nil {
		return nil, err
	}
	r.claims = claim.NewManager(claim.Config{
		Node: nodeName, Driver: hardware.driver, Ledger: book, CDI: files,
		GPUs:    func() []gpu.GPU { return slices.Clone(hardware.gpus) },
		LoadID:  func(string) string { return "5f0c0ed8-30ab-4a4b-9a4b-000000000000" },
		LockDir: dir,
		Shares:  hardware.shares,
	})
	// The log is written, to where it costs no more.
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(io.Discard)))
	metadata := cdi.MetadataFiles{Held: book.Has}
	r.helper, err = kubeletplugin.Start(klog.NewContext(ctx, logger), r,
		kubeletplugin.DriverName(names.DriverName),
		kubeletplugin.KubeClient(r.api),
		kubeletplugin.NodeName(nodeName),
		kubeletplugin.RegistrarDirectoryPath(dir),
		kubeletplugin.PluginDataDirectoryPath(dir),
		kubeletplugin.Serialize(false),
		kubeletplugin.EnableDeviceMetadata(true, []schema.GroupVersion{metadatav1beta1.SchemeGroupVersion}),
		kubeletplugin.CDIDirectory(filepath.Join(dir, "cdi")),
		kubeletplugin.MetadataFileOps(kubeletplugin.MetadataFileOperations{
			WriteFile: metadata.WriteFile, Glob: metadata.Glob, RemoveAll: metadata.RemoveAll,
		}),
	)
	if err != nil {
		return nil, err
	}
	if r.kubelet, err = dialPlugin(filepath.Join(dir, "dra.sock")); err != nil {
		r.helper.Stop()
		return nil, err
	}
	return r, nil
}

func (r *rig) stop() {
	_ = r.conn.Close()
	r.helper.Stop()
}

// allocate puts a claim into the API server.
func (r *rig) allocate(c *resourceapi.ResourceClaim) error { return r.api.Tracker().Add(c) }

// PrepareResourceClaims implements kubeletplugin.DRAPlugin as pkg/node does.
func (r *rig) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(claims))
	var wg sync.WaitGroup
	for i, c := range claims {
		wg.Go(func() { results[i] = r.prepareOne(ctx, c) })
	}
	wg.Wait()
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, c := range claims {
		byUID[c.UID] = results[i]
	}
	return byUID, nil
}

func (r *rig) prepareOne(ctx context.Context, c *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "claim", klog.KObj(c), "claimUID", c.UID)
	record, _, err := r.claims.Prepare(klog.NewContext(ctx, logger), c)
	if err != nil {
		return kubeletplugin.PrepareResult{Err: err}
	}
	var devices []kubeletplugin.Device
	for _, d := range record.Devices {
		devices = append(devices, kubeletplugin.Device{
			Requests: []string{d.Request}, PoolName: d.Pool, DeviceName: d.Name,
			CDIDeviceIDs: []string{cdi.DeviceID(c.UID, d.Name)},
		})
		logger.Info("Prepared", "device", d.Name, "uuid", d.UUID)
	}
	return kubeletplugin.PrepareResult{Devices: devices}
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (r *rig) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	byUID := make(map[types.UID]error, len(claims))
	for _, c := range claims {
		byUID[c.UID] = r.claims.Unprepare(ctx, ledger.ClaimRef{UID: c.UID, Namespace: c.Namespace, Name: c.Name})
	}
	return byUID, nil
}

// HandleError implements kubeletplugin.DRAPlugin.
func (r *rig) HandleError(_ context.Context, err error, message string) {
	fmt.Fprintf(os.Stderr, "plugin: %s: %v\n", message, err)
}

// WatchHealthStatus implements kubeletplugin.DRAPlugin.
func (r *rig) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
