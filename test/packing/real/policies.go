package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/controlplane"
)

// policy is one way to keep pods with GPUs together.
type policy struct {
	name string
	// values are settings of the chart, in the form of helm's --set.
	values string
	// configuration is the scheduler's. Nil means its defaults.
	configuration func(context.Context, *controlplane.Cluster) (map[string]any, error)
	ask           ask
	// admitted tells of a pod that the API server accepted whether what the chart changes in
	// pods works already. Nil: it changes none.
	admitted func(*corev1.Pod) bool
	// marks: an attribute says which GPUs are in use.
	marks bool
	// requests: pods request the GPU memory and compute that their claims take at least.
	requests bool
	// slow: the scheduler needs several times the CPU.
	slow bool
}

// noPolicies leaves out those that let only the chart's policy write requests, and the controller
// that tells it the amounts does not run.
const noPolicies = "gpuResources.enabled=false"

// policies are all of them. The first is what the others are compared with.
var policies = []policy{
	{name: "default", ask: byClaim},
	{name: "profile", ask: byClaim, values: "scheduler.enabled=true", configuration: chartProfile},
	{name: "pod-affinity", ask: byClaim, values: "podAffinity.enabled=true", admitted: func(p *corev1.Pod) bool { return p.Spec.Affinity != nil }},
	{name: "requests", ask: byClaim, values: noPolicies, requests: true},
	{name: "compute", ask: byClaim, values: noPolicies, requests: true, configuration: mostAllocated(names.ResourceGPUCompute)},
	{name: "profile+requests", ask: byClaim, values: "scheduler.enabled=true," + noPolicies, requests: true, configuration: chartProfile},
	{name: "first-available", ask: byUsedFirst, marks: true, slow: true},
	{name: "extended-resource", ask: byExtendedResource, configuration: mostAllocated(extendedResources()...), slow: true},
}

// chartProfile is the configuration of the chart's second scheduler, for the pods that name none.
func chartProfile(ctx context.Context, c *controlplane.Cluster) (map[string]any, error) {
	name := controlplane.Release + "-scheduler"
	object, err := c.Core.CoreV1().ConfigMaps(controlplane.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read the chart's profile: %w", err)
	}
	return forAllPods(object.Data["config.yaml"])
}

// forAllPods is a configuration whose only profile takes the pods that name no scheduler.
func forAllPods(text string) (map[string]any, error) {
	var configuration map[string]any
	if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	profiles, _ := configuration["profiles"].([]any)
	if len(profiles) != 1 {
		return nil, fmt.Errorf("the scheduler's configuration has %d profiles", len(profiles))
	}
	profile, ok := profiles[0].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("profile %v is no object", profiles[0])
	}
	profile["schedulerName"] = corev1.DefaultSchedulerName
	return configuration, nil
}

// mostAllocated is a configuration that scores nodes by how much of extended resources is allocated.
func mostAllocated(resources ...corev1.ResourceName) func(context.Context, *controlplane.Cluster) (map[string]any, error) {
	return func(context.Context, *controlplane.Cluster) (map[string]any, error) {
		text := `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - pluginConfig:
      - name: NodeResourcesFit
        args:
          scoringStrategy:
            type: MostAllocated
            resources:
`
		for _, name := range resources {
			text += "              - {name: " + string(name) + ", weight: 1}\n"
		}
		return forAllPods(text)
	}
}
