package node

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/tranche-dev/tranche/api/v1alpha1"
)

// With a controller the files with profiles are not read. How the cards were shared
// without it stays until it has looked at the node.
func TestFilesWithController(t *testing.T) {
	m := newMachine(t, newAPI())
	m.profile("{sharing: {replicas: 4}}")
	_, stop := m.start()
	awaitReplicas(t, m.api, fraction0, 250)
	stop()

	s := steer(m)
	m.profile("{sharing: {replicas: 5}}")
	_, stop = s.start()
	s.await("no report", func(r *v1alpha1.NodeReport) bool { return r.Count == 2 })
	awaitReplicas(t, m.api, fraction0, 250)
	node, err := s.get()
	require.NoError(t, err)
	node.Status.State = v1alpha1.Idle // a node of the control plane, of which it wants nothing
	require.NoError(t, s.nodes.Tracker.Update(v1alpha1.GroupVersion.WithResource("gpunodes"), node, ""))
	awaitReplicas(t, m.api, fraction0, 100)

	require.Equal(t, v1alpha1.TaskDone, s.ask(v1alpha1.Applying, nothing, wish(t, "two", "[{sharing: {replicas: 2}}]")).Phase)
	awaitReplicas(t, m.api, fraction0, 500)
	stop()
	s.start()
	awaitReplicas(t, m.api, fraction0, 500)
}

// The log names the files that are there and that nobody reads here.
func TestIgnoredFilesAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		controller bool
		files      []string
		says       bool
	}{
		"with a controller":    {true, []string{"default.yaml", "..data"}, true},
		"nothing to ignore":    {true, []string{"..data"}, false},
		"without a controller": {false, []string{"default.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, newAPI())
			for _, file := range test.files {
				m.write("profiles/"+file, "")
			}
			m.config.ProfilesDir = m.path("profiles")
			if test.controller {
				steer(m)
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			m.config.settingsSource(klog.NewContext(t.Context(), logger))
			said := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if !test.says {
				require.Empty(t, said)
				return
			}
			require.Contains(t, said, "these files with PartitionProfiles are not read here")
			require.Contains(t, said, "default.yaml")
		})
	}
}
