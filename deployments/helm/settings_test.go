package helm_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/profile/formats"
)

// The configuration files of the device plugin can be read, under the names by which labels choose
// them, and so can the profiles.
func TestSettingsAreRead(t *testing.T) {
	objects := decode(t, render(t, chart, "--values", "testdata/custom.values.yaml"))
	configs := all[*corev1.ConfigMap](objects)
	i := slices.IndexFunc(configs, func(c *corev1.ConfigMap) bool { return strings.HasSuffix(c.Name, "-device-plugin-configs") })
	require.GreaterOrEqual(t, i, 0)
	assert.Contains(t, deploymentOf(t, objects).Spec.Template.Spec.Containers[0].Args, "--follow-labels=device-plugin=gpu-operator/time-slicing-config")
	assert.ElementsMatch(t, []string{"slice-10", "Slice_4"}, slices.Collect(maps.Keys(configs[i].Data)))
	for name, data := range configs[i].Data {
		require.NoError(t, formats.ReadDevicePlugin(name, name, []byte(data)).Err)
	}
	dir := mounted(t, objects, deploymentOf(t, objects).Spec.Template.Spec, "--profiles-dir=")
	for _, name := range []string{"default", "1", "nothing"} {
		file := filepath.Join(dir, name+".yaml")
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		s, err := profile.Parse(file, content)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(s.Profile, " "+name), s.Profile)
	}
}

// mounted writes the ConfigMap that lies where a flag points as the kubelet would.
func mounted(t *testing.T, objects []runtime.Object, plugin corev1.PodSpec, flag string) string {
	t.Helper()
	container := plugin.Containers[0]
	i := slices.IndexFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	require.GreaterOrEqual(t, i, 0, flag)
	path, _, _ := strings.Cut(strings.TrimPrefix(container.Args[i], flag), ",")
	i = slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
	require.GreaterOrEqual(t, i, 0, path)
	mount := container.VolumeMounts[i]
	require.Empty(t, mount.SubPath, "changes do not get into a subPath")
	i = slices.IndexFunc(plugin.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
	name := plugin.Volumes[i].ConfigMap.Name
	dir := t.TempDir()
	for _, object := range objects {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Name == name {
			for key, content := range m.Data {
				require.NoError(t, os.WriteFile(filepath.Join(dir, key), []byte(content), 0o600))
			}
			return dir
		}
	}
	t.Fatalf("there is no ConfigMap %s", name)
	return ""
}

// A change of the settings, the first ones included, restarts no pod.
func TestSettingsNeedNoRestart(t *testing.T) {
	before := one[*appsv1.DaemonSet](t, decode(t, render(t, chart)))
	after := one[*appsv1.DaemonSet](t, decode(t, render(t, chart, "--set", "partitionProfiles.default.rules[0].sharing.replicas=2",
		"--set-file", "devicePluginConfig.slice-10=../../pkg/profile/formats/testdata/deviceplugin/time-slicing.yaml")))
	require.Equal(t, before.Spec, after.Spec)
}

// What is wrong in a profile is refused before anything is installed, and the error
// names the key.
func TestBadSettings(t *testing.T) {
	const rule = "partitionProfiles.a.rules[0]."
	all := map[string]refusal{
		"name":                  {"partitionProfiles.A_b.rules[0].extendedResource.device=GPU", []string{"/partitionProfiles", "'A_b' not allowed"}},
		"spec around the rules": {"partitionProfiles.a.spec.rules[0].extendedResource.device=GPU", []string{"/partitionProfiles/a", "'spec' not allowed"}},
		"misspelt key":          {rule + "sharing.replica=2", []string{"/partitionProfiles/a/rules/0/sharing", "'replica' not allowed"}},
		"misplaced key":         {rule + "replicas=2", []string{"/partitionProfiles/a/rules/0", "'replicas' not allowed"}},
		"no replicas":           {rule + "sharing.replicas=0", []string{"/partitionProfiles/a/rules/0/sharing/replicas", "minimum"}},
		"half a replica":        {rule + "sharing.replicas=1.5", []string{"/partitionProfiles/a/rules/0/sharing/replicas"}},
		"too many replicas":     {rule + "sharing.replicas=1001", []string{"/partitionProfiles/a/rules/0/sharing/replicas", "maximum"}},
		"strategy":              {rule + "sharing.strategy=mps", []string{"/sharing/strategy", "'TimeSlicing', 'MPS'"}},
		"more than MPS takes":   {rule + "sharing.strategy=MPS," + rule + "sharing.replicas=49", []string{"/sharing/replicas", "48"}},
		"clients of MPS":        {rule + "sharing.strategy=MPS," + rule + "sharing.maxClients=49", []string{"/sharing/maxClients", "48"}},
		"MPS on partitions":     {rule + "sharing.strategy=MPS," + rule + "sharing.partitions.profiles={1g.10gb}", []string{"/sharing/partitions"}},
		"time slice of MPS":     {rule + "sharing.strategy=MPS," + rule + "sharing.timeSlice=Long", []string{"/sharing/timeSlice"}},
		"MPS on AMD":            {rule + "gpus.vendor=amd," + rule + "sharing.strategy=MPS", []string{"/sharing/strategy"}},
		"time slice on AMD":     {rule + "gpus.vendor=amd," + rule + "sharing.timeSlice=Long", []string{"/sharing/timeSlice"}},
		"exclusive without MPS": {rule + "sharing.exclusiveProcess=true", []string{"/sharing/exclusiveProcess"}},
		"time slice":            {rule + "sharing.timeSlice=long", []string{"/sharing/timeSlice", "'Long'"}},
		"plus variant":          {rule + "sharing.partitions.profiles={1g.10gb+me}", []string{"/sharing/partitions/profiles/0"}},
		"units of nothing":      {rule + "sharing.partitions.units={Fraction}", []string{"/sharing/partitions", "'profiles'"}},
		"extended resource":     {rule + "extendedResource.device=Half", []string{"/extendedResource/device"}},
		"vendor":                {rule + "gpus.vendor=NVIDIA", []string{"/gpus/vendor", "'nvidia', 'amd'"}},
		"address":               {rule + "gpus.pciBusIDs={c1:00.0}", []string{"/gpus/pciBusIDs/0"}},
		"index":                 {rule + "gpus.indexes={-1}", []string{"/gpus/indexes/0"}},
		"twice":                 {rule + "gpus.productNames={L4,L4}", []string{"/gpus/productNames", "equal"}},
		"mode":                  {rule + "mig.mode=static", []string{"/mig/mode", "'Static'"}},
		"MIG support":           {rule + "gpus.migSupport=capable", []string{"/gpus/migSupport", "'Capable', 'Incapable'"}},
		"unchanged":             {rule + "unchanged=maybe", []string{"/unchanged"}},
		"static nothing":        {rule + "mig.mode=Static", []string{"/mig", "'partitions'"}},
		"partitions":            {rule + "mig.partitions[0].profile=1g", []string{"/mig/partitions"}},
		"profiles":              {rule + "mig.mode=Static," + rule + "mig.partitions[0].profile=1g," + rule + "mig.profiles={1g}", []string{"/mig/profiles"}},
		"MIG on AMD":            {rule + "gpus.vendor=amd," + rule + "mig.mode=Disabled", []string{"/mig"}},
		"MIG profile":           {rule + "mig.profiles={1c.3g.40gb}", []string{"/mig/profiles/0"}},
		"compute mode":          {rule + "xcp.computePartition=cpx", []string{"/xcp/computePartition", "'CPX'"}},
		"count":                 {rule + "gpus.count=0", []string{"/gpus/count", "minimum"}},
		"PCI id":                {rule + "gpus.pciIDs={0x2330}", []string{"/gpus/pciIDs/0"}},
		"deadline":              {"partitionProfiles.a.switch.drainDeadline=soon", []string{"/partitionProfiles/a/switch/drainDeadline"}},
		"device plugin: flages": {"devicePluginConfig.a.flages.migStrategy=single", []string{"/devicePluginConfig/a", "'flages' not allowed"}},
		"device plugin: misspelt": {"devicePluginConfig.a.sharing.timeSlicing.failRequestGreaterThanOne=true",
			[]string{"/devicePluginConfig/a/sharing/timeSlicing", "'failRequestGreaterThanOne' not allowed"}},
		"device plugin: both": {"devicePluginConfig.a.sharing.timeSlicing.resources[0].name=gpu,devicePluginConfig.a.sharing.mps.resources[0].name=gpu",
			[]string{"/devicePluginConfig/a/sharing"}},
		"device plugin: a list": {"devicePluginConfig={a}", []string{"/devicePluginConfig", "want object"}},
	}
	// Each has a profile or a file of its own.
	for n, name := range slices.Sorted(maps.Keys(all)) {
		own := fmt.Sprintf("case-%d", n)
		r := refusal{set: strings.NewReplacer("partitionProfiles.a.", "partitionProfiles."+own+".", "Config.a.", "Config."+own+".").Replace(all[name].set)}
		for _, part := range all[name].says {
			r.says = append(r.says, strings.NewReplacer("/partitionProfiles/a", "/partitionProfiles/"+own, "Config/a", "Config/"+own).Replace(part))
		}
		if r.set != all[name].set {
			r.says = append(r.says, "/"+own)
		}
		all[name] = r
	}
	requireRefused(t, all)
}

// The schema of a profile is the one of the API: the same keys, values, patterns and bounds.
func TestSchemaOfProfilesIsThatOfTheAPI(t *testing.T) {
	content, err := os.ReadFile(chart + "/files/crds/tranche.dev_partitionprofiles.yaml")
	require.NoError(t, err)
	var crd map[string]any
	require.NoError(t, yaml.Unmarshal(content, &crd))
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	require.NoError(t, err)
	require.Len(t, versions, 1)
	spec, found, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	require.NoError(t, err)
	require.True(t, found)
	profiles := readSchema(t)["properties"].(map[string]any)["partitionProfiles"].(map[string]any)["patternProperties"].(map[string]any)
	require.Len(t, profiles, 1)
	for _, own := range profiles {
		sameSchema(t, "spec", own, spec)
	}
}

func sameSchema(t *testing.T, path string, own, api any) {
	t.Helper()
	a, _ := own.(map[string]any)
	b, _ := api.(map[string]any)
	for _, key := range []string{"type", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"} {
		x, isList := a[key].([]any)
		y, areLists := b[key].([]any)
		if isList && areLists {
			assert.ElementsMatch(t, y, x, "%s: %s", path, key)
			continue
		}
		assert.Equal(t, b[key], a[key], "%s: %s", path, key)
	}
	mine, _ := a["properties"].(map[string]any)
	theirs, _ := b["properties"].(map[string]any)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(theirs)), slices.Collect(maps.Keys(mine)), path)
	for key := range theirs {
		sameSchema(t, path+"."+key, mine[key], theirs[key])
	}
	if b["items"] != nil {
		sameSchema(t, path+"[]", a["items"], b["items"])
	}
}
