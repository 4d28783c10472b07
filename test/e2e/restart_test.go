package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tranche-dev/tranche/api/names"
)

// A kubelet that starts removes the slices of its node. They are back within
// five seconds after it has registered the plugin, running pods keep their
// devices, and new ones get some. It would end pods that request more GPU
// memory or compute than the node has, also after a reboot.
func TestKubeletRestart(t *testing.T) {
	s := startOnCluster(t)
	s.requestGPUResources()
	s.template("small", devices(request(class1g10gb, "")))
	s.podsRequest("pods request compute", "small", "142")
	pod := newPod("before", fromTemplate("small"))
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeA}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.create(pod)
	before := s.waitRunning("before")
	sees := s.seen(before, "main")
	published := s.watchSlices(nodeA)
	all := published.count()

	restarted := time.Now()
	s.onHost("cluster", "restart-kubelet", "--dir", s.cluster, "--node", nodeA)
	registered := s.registeredAfter(restarted)
	s.gpuPod("after", class1g10gb)
	s.waitRunning("after")
	s.requireInstances(2)

	assert.Equal(t, all, published.count())
	back := published.lastChange()
	require.True(t, back.After(restarted), "the kubelet has not removed the slices, so this test shows nothing")
	assert.LessOrEqual(t, back.Sub(registered), 30*time.Second, "time until all slices are back")
	t.Logf("all %d slices are back %s after the plugin was registered", all, back.Sub(registered))

	now := s.pod("before")
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	assert.Equal(t, corev1.PodRunning, now.Status.Phase)
	assert.Equal(t, sees, s.seen(now, "main"))
	s.hasGPUResources("the node still has GPU memory and compute")

	s.onHost("cluster", "reboot", "--dir", s.cluster, "--node", nodeA)
	s.eventually("the pod runs again after the reboot", func() (bool, string) {
		now = s.pod("before")
		again := now.Status.ContainerStatuses[0]
		return now.Status.Phase == corev1.PodRunning && again.Ready && again.ContainerID != before.Status.ContainerStatuses[0].ContainerID, fmt.Sprint(now.Status)
	})
	assert.Equal(t, before.UID, now.UID)
	s.hasGPUResources("the node has them after the reboot")
}

// Nodes reboot while pods hold GPUs in every way, and no profile changes. Partitions and modes are gone
// then: each pod runs again, with what its claim was allocated.
func TestRebootOfNodesWithClaims(t *testing.T) {
	s := startAtNight(t)
	holders := map[string]struct {
		node    string
		request resourceapi.DeviceRequest
		sees    func(pod *corev1.Pod, device resourceapi.DeviceRequestAllocationResult)
	}{
		"partition": {nodeA, request(class1g10gb, ""), func(pod *corev1.Pod, device resourceapi.DeviceRequestAllocationResult) {
			s.requireSees(pod, "main", device, "1g.10gb")
		}},
		"whole": {nodeA, request(classWhole, ""), func(pod *corev1.Pod, device resourceapi.DeviceRequestAllocationResult) {
			s.requireSees(pod, "main", device, "gpu")
		}},
		"share": {nodeA, shareRequest(classMemoryShare, "", amounts{"memory": "10Gi"}), func(pod *corev1.Pod, _ resourceapi.DeviceRequestAllocationResult) {
			s.requireSeesShare(pod, "main")
		}},
		"cpx": {nodeC, request(classCPX, ""), func(pod *corev1.Pod, device resourceapi.DeviceRequestAllocationResult) {
			s.requireSeesAMD(pod, "main", device, "cpx")
		}},
	}
	for name, h := range holders {
		s.template(name, devices(h.request))
		pod := newPod(name, fromTemplate(name))
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: h.node}
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		s.create(pod)
	}
	before, allocated := map[string]*corev1.Pod{}, map[string]resourceapi.DeviceRequestAllocationResult{}
	for name := range holders {
		before[name] = s.waitRunning(name)
		allocated[name] = s.allocated(before[name], "")
	}
	for _, node := range []string{nodeA, nodeC} {
		s.onHost("cluster", "reboot", "--dir", s.cluster, "--node", node)
	}
	s.firstMinors = nil // AMD's driver was loaded again
	for name, h := range holders {
		var now *corev1.Pod
		s.eventually("pod "+name+" runs again", func() (bool, string) {
			now = s.pod(name)
			again := now.Status.ContainerStatuses[0]
			return now.Status.Phase == corev1.PodRunning && again.Ready && again.ContainerID != before[name].Status.ContainerStatuses[0].ContainerID, fmt.Sprint(now.Status) + "\n" + s.eventsText(name)
		})
		assert.Equal(t, before[name].UID, now.UID, name)
		assert.Equal(t, allocated[name], s.allocated(now, ""), name)
		h.sees(now, allocated[name])
	}
}

// A restart of the plugin on unchanged hardware writes no slice: each write
// makes every scheduler look at the node again.
func TestPluginRestartWritesNoSlice(t *testing.T) {
	s := start(t)
	s.gpuPod("before", class1g10gb)
	before := s.waitRunning("before")
	published := s.watchSlices(nodeA)
	versions := published.all()

	s.restartPlugin(nodeA)
	s.gpuPod("after", class1g10gb)
	s.waitRunning("after")
	s.eventually("the new plugin has published", func() (bool, string) {
		metrics, err := s.get(nodeA, "metrics")
		return err == nil && regexp.MustCompile(`(?m)^tranche_published_devices\{.*\} [1-9]`).MatchString(metrics), metrics
	})
	assert.Equal(t, versions, published.all(), "%s", published.lastWritten())
	assert.True(t, published.lastChange().IsZero())

	now := s.pod("before")
	assert.Equal(t, before.Status.ContainerStatuses[0].ContainerID, now.Status.ContainerStatuses[0].ContainerID)
	s.requireInstances(2)
}

func (s *suite) onHost(program string, args ...string) {
	s.t.Helper()
	out, err := s.try(program, args...)
	require.NoError(s.t, err, out)
}

var registeredLine = regexp.MustCompile(`(?m)^I(\d{4} \d\d:\d\d:\d\d\.\d{6}) .*"Connection changed".*driverName="` + regexp.QuoteMeta(names.DriverName) + `".*connected=true`)

// registeredAfter waits until node-a's kubelet says in its log that it has
// registered the plugin, after a time, and returns when.
func (s *suite) registeredAfter(start time.Time) (registered time.Time) {
	s.t.Helper()
	s.eventually("the kubelet registers the plugin", func() (bool, string) {
		log, err := os.ReadFile(filepath.Join(s.cluster, "logs", nodeA+"-kubelet.log"))
		require.NoError(s.t, err)
		lines := registeredLine.FindAllSubmatch(log, -1)
		if len(lines) == 0 {
			return false, "it never has"
		}
		at, err := time.ParseInLocation("20060102 15:04:05.000000", time.Now().Format("2006")+string(lines[len(lines)-1][1]), time.Local)
		require.NoError(s.t, err)
		registered = at
		return at.After(start), "the last time was " + at.String()
	})
	return registered
}

// publication follows the slices of a node.
type publication struct {
	// mu protects the fields below.
	mu       sync.Mutex
	versions map[string]string
	changed  time.Time
	devices  map[string]resourceapi.Device
	// written says which devices have changed, and how.
	written []string
}

func (p *publication) count() int { return len(p.all()) }

// all gives the resource versions of all slices by name.
func (p *publication) all() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.versions)
}

// lastWritten says which devices have changed.
func (p *publication) lastWritten() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.written, "\n")
}

// lastChange is when a slice was last written or removed since the watch began.
func (p *publication) lastChange() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

// watchSlices follows the slices of a node until the test ends.
func (s *suite) watchSlices(node string) *publication {
	s.t.Helper()
	slices := s.client.ResourceV1().ResourceSlices()
	options := metav1.ListOptions{FieldSelector: fields.Set{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   names.DriverName,
	}.String()}
	list, err := slices.List(s.ctx, options)
	require.NoError(s.t, err)
	p := &publication{versions: map[string]string{}, devices: map[string]resourceapi.Device{}}
	for _, slice := range list.Items {
		p.versions[slice.Name] = slice.ResourceVersion
		p.remember(&slice)
	}
	options.ResourceVersion = list.ResourceVersion
	changes, err := slices.Watch(s.ctx, options)
	require.NoError(s.t, err)
	s.t.Cleanup(changes.Stop)
	go func() {
		for event := range changes.ResultChan() {
			p.take(event)
		}
	}()
	return p
}

func (p *publication) take(event watch.Event) {
	slice, ok := event.Object.(*resourceapi.ResourceSlice)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = time.Now()
	if event.Type == watch.Deleted {
		delete(p.versions, slice.Name)
	} else {
		p.versions[slice.Name] = slice.ResourceVersion
		p.remember(slice)
	}
}

// remember notes which devices a write has changed.
func (p *publication) remember(slice *resourceapi.ResourceSlice) {
	for _, d := range slice.Spec.Devices {
		if before, known := p.devices[d.Name]; known && !equality.Semantic.DeepEqual(before, d) {
			p.written = append(p.written, fmt.Sprintf("%s was %+v and is %+v", d.Name, before, d))
		}
		p.devices[d.Name] = d
	}
}
