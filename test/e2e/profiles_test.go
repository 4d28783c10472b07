package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// profilesMap is the ConfigMap of the chart that has the profiles.
const profilesMap = "tranche-profiles"

// followProfile makes a node follow a profile of one rule, until the test ends.
func (s *suite) followProfile(node, name, rule string) {
	s.t.Helper()
	s.setProfile(name, rule)
	s.labelProfile(node, name)
}

// setProfile adds a profile of one rule to those of the cluster, until the test
// ends.
func (s *suite) setProfile(name, rule string) {
	s.t.Helper()
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s}\nspec: {rules: [%s]}\n", v1alpha1.GroupVersion, v1alpha1.ProfileKind, name, rule)
	set := func(value any) {
		patch, err := yaml.Marshal(map[string]any{"data": map[string]any{name + ".yaml": value}})
		require.NoError(s.t, err)
		patch, err = yaml.YAMLToJSON(patch)
		require.NoError(s.t, err)
		_, err = s.client.CoreV1().ConfigMaps(pluginNamespace).Patch(s.ctx, profilesMap, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(s.t, err)
		for _, node := range s.nodes {
			s.refreshFiles(node)
		}
	}
	s.t.Cleanup(func() { set(nil) })
	set(text)
}

// refreshFiles makes the kubelet look at the plugin's pod, which brings it the
// changes of its ConfigMaps. By itself it would do so within a minute or two.
func (s *suite) refreshFiles(node string) {
	s.t.Helper()
	s.kubectl("-n", pluginNamespace, "annotate", "--overwrite", "pod", s.plugin(node).Name, "tranche.dev/refreshed="+fmt.Sprint(os.Getpid())+s.namespace+s.t.Name()[strings.LastIndex(s.t.Name(), "/")+1:])
}

// labelProfile makes a node follow a profile, until the test ends: then it takes
// the label away, and waits until the node publishes what it did before.
func (s *suite) labelProfile(node, name string) {
	s.t.Helper()
	before := s.published(node)
	label := func(value string) {
		_, err := s.client.CoreV1().Nodes().Patch(s.ctx, node, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.ProfileLabel, value), metav1.PatchOptions{})
		require.NoError(s.t, err)
	}
	s.t.Cleanup(func() {
		s.deletePods()
		label("null")
		s.eventually(node+" publishes what it did before", func() (bool, string) {
			now := s.published(node)
			return slices.Equal(before, now), strings.Join(now, "\n")
		})
	})
	label(fmt.Sprintf("%q", name))
}

// published is what a node publishes, as far as settings change it.
func (s *suite) published(node string) (lines []string) {
	s.t.Helper()
	for _, slice := range s.slices(node) {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			d.Taints = nil
			text, err := yaml.Marshal(d)
			require.NoError(s.t, err)
			lines = append(lines, string(text))
		}
	}
	slices.Sort(lines)
	return lines
}

// sharing is how a card of a node is shared: the attribute of its shares.
func (s *suite) sharing(node, pci string) string {
	s.t.Helper()
	for _, slice := range s.slices(node) {
		if slice.Spec.Pool.Name != gpu.PoolName(node, gpu.CardName(pci)) {
			continue
		}
		for i := range slice.Spec.Devices {
			if a, ok := slice.Spec.Devices[i].Attributes["sharing"]; ok {
				return *a.StringValue
			}
		}
	}
	return "it has no shares"
}

// followDemoProfile makes node-a follow the profile that a demo brings along, if
// there is one. The cluster has it since its start (test/up.sh).
func (s *suite) followDemoProfile(folder string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "settings", "values.yaml"))
	if os.IsNotExist(err) {
		return
	}
	require.NoError(s.t, err)
	var values struct {
		Profiles map[string]any `json:"profiles"`
	}
	require.NoError(s.t, yaml.Unmarshal(text, &values))
	require.Len(s.t, values.Profiles, 1, folder)
	before := s.published(nodeA)
	for name := range values.Profiles {
		s.labelProfile(nodeA, name)
	}
	s.eventually("node-a follows the profile", func() (bool, string) {
		return !slices.Equal(before, s.published(nodeA)), "it publishes what it did before"
	})
	s.eventually("all its cards follow", func() (bool, string) {
		now := s.published(nodeA)
		time.Sleep(glance)
		return slices.Equal(now, s.published(nodeA)), "it still changes"
	})
}

// waitPublishes waits until a node publishes devices with a text in them.
func (s *suite) waitPublishes(node, text string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s publishes %q", node, text), func() (bool, string) {
		all := strings.Join(s.published(node), "")
		return strings.Contains(all, text), all
	})
}

// profileIs selects partitions, or shares of them, by their profile.
func profileIs(profile string) []resourceapi.DeviceSelector {
	return []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
		Expression: fmt.Sprintf(`device.attributes["gpu.tranche.dev"].?profile.orValue("") == %q`, profile),
	}}}
}
