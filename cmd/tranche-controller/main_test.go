package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/adopt"
)

func runIt(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBadFlags(t *testing.T) {
	for name, tt := range map[string]struct {
		args    []string
		message string
	}{
		"unknown flag":    {[]string{"--max-unavail=1"}, "unknown flag: --max-unavail"},
		"an argument":     {[]string{"node-a"}, `unknown command "node-a"`},
		"no budget":       {[]string{"--max-unavailable=0"}, `the number of nodes that may be unavailable is "0": give 1 or more`},
		"not a budget":    {[]string{"--max-unavailable=ten"}, "give 1 or more, or 1% to 100%"},
		"after deadline":  {[]string{"--after-deadline=Wait"}, `"Wait" is neither GiveUp nor Force`},
		"reboot":          {[]string{"--reboot=Always"}, `"Always" is neither Never nor IfRequired`},
		"whose labels":    {[]string{"--follow-labels=kai"}, `"kai" is not one of ["device-config-manager" "device-plugin" "kaiwo" "mig-parted" "nos"]`},
		"which ConfigMap": {[]string{"--follow-labels=mig-parted=gpu-operator/mig"}, `"gpu-operator/mig" is not NAMESPACE/NAME/KEY of a ConfigMap`},
		"which slices":    {[]string{"--follow-labels=device-plugin"}, `"" is not NAMESPACE/NAME of a ConfigMap`},
		"no such project": {[]string{"--translate=kai,volcano"}, `--translate: "volcano" is none of kai, hami, nos`},
		"no rate":         {[]string{"--explain-pending-max-calls-per-second=0"}, "--explain-pending-max-calls-per-second is not more than 0"},
		"no workers":      {[]string{"--workers=0"}, "--workers is less than 1"},
		"too many labels": {[]string{"--pause-labels=" + strings.Repeat("a,", 16) + "a"}, "--pause-labels has 17 labels, at most 16 are possible"},
		"too many moves":  {[]string{"--defragment-max-pods=17"}, "--defragment-max-pods is not from 1 to 16"},
		"force before":    {[]string{"--force-deadline=-1s"}, "--force-deadline is -1s, it must not be less than 0"},
		"no deadline":     {[]string{"--applying-deadline=0s"}, "--applying-deadline is 0s, it must be more than 0"},
		"no drain at all": {[]string{"--drain-deadline=-1m"}, "--drain-deadline is -1m0s"},
		"log format":      {[]string{"--logging-format=xml"}, "logging flags"},
		"no kubeconfig":   {[]string{"--kubeconfig=/does/not/exist"}, "find out how to reach the API server"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := runIt(t, tt.args...)
			require.ErrorContains(t, err, tt.message)
		})
	}
}

func TestFlagsReachTheOptions(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "tranche-system")
	c := config{options: defaults(), explain: defaultExplain(), defragment: defaultDefragment()}
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addFlags(set, &c)
	set.VisitAll(func(f *pflag.Flag) { assert.NotEmpty(t, f.Usage, f.Name) })
	require.NoError(t, c.check())
	assert.Equal(t, "tranche-system", c.systemNamespace)
	assert.Equal(t, names.TaintStartup, c.options.StartupTaint)
	require.NoError(t, set.Parse([]string{
		"--max-unavailable=10%", "--after-deadline=Force", "--drain-deadline=2m", "--applying-deadline=3m", "--pause-labels=a,b", "--monitoring-namespaces=c,d", "--leader-elect=false", "--startup-taint=a.b/c",
		"--reboot=IfRequired", "--follow-labels=nos", "--follow-labels=mig-parted=gpu-operator/mig/config.yaml", "--follow-labels=device-plugin=gpu-operator/slices",
	}))
	require.NoError(t, c.check())
	assert.Equal(t, "10%", c.options.MaxUnavailable)
	assert.Equal(t, v1beta1.Force, c.options.Policy.AfterDeadline)
	assert.Equal(t, 2*time.Minute, c.options.Policy.DrainDeadline.Duration)
	assert.Equal(t, 3*time.Minute, c.options.Deadlines.Applying)
	assert.Equal(t, time.Minute, c.options.Deadlines.Planning)
	assert.Equal(t, []string{"a", "b"}, c.options.PauseLabels)
	assert.Equal(t, []string{"c", "d"}, c.options.MonitoringNamespaces)
	assert.Equal(t, "a.b/c", c.options.StartupTaint)
	assert.False(t, c.leaderElect)
	assert.Equal(t, v1beta1.RebootIfRequired, c.options.Policy.Reboot)
	assert.Equal(t, map[adopt.Project]adopt.ConfigMap{
		adopt.Nos: {}, adopt.MIGParted: {Namespace: "gpu-operator", Name: "mig", Key: "config.yaml"},
		adopt.DevicePlugin: {Namespace: "gpu-operator", Name: "slices"},
	}, c.options.Labels.Projects)
}
