package formats

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KaiwoKinds are the kinds of objects that can be read.
var KaiwoKinds = []string{"KaiwoNode", "PartitioningProfile", "PartitioningPlan"}

type kaiwoObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            any `json:"status"`
}

type kaiwoNode struct {
	kaiwoObject `json:",inline"`
	Spec        struct {
		Partitioning struct {
			Enabled bool   `json:"enabled"`
			Profile string `json:"profile"`
		} `json:"partitioning"`
	} `json:"spec"`
}

type partitioningProfile struct {
	kaiwoObject `json:",inline"`
	Spec        profileSpec `json:"spec"`
}

// profileSpec is that of a PartitioningProfile, and of a rule that contains one. The names of
// displayName and profileName are older.
type profileSpec struct {
	DisplayName       string                `json:"displayName"`
	Description       string                `json:"description"`
	ProfileName       string                `json:"profileName"`
	DCMProfileName    string                `json:"dcmProfileName"`
	TargetSelector    *metav1.LabelSelector `json:"targetSelector"`
	ExpectedResources map[string]any        `json:"expectedResources"`
}

type partitioningPlan struct {
	kaiwoObject `json:",inline"`
	Spec        struct {
		Paused  bool `json:"paused"`
		DryRun  bool `json:"dryRun"`
		Rollout *struct {
			MaxParallel         *int32 `json:"maxParallel"`
			MaxUnavailable      *int32 `json:"maxUnavailable"`
			ExcludeControlPlane *bool  `json:"excludeControlPlane"`
		} `json:"rollout"`
		Verification any        `json:"verification"`
		Defaults     any        `json:"defaults"`
		Rules        []planRule `json:"rules"`
		// Partitionings is an older name of rules.
		Partitionings []planRule `json:"partitionings"`
	} `json:"spec"`
}

type planRule struct {
	Name        string               `json:"name"`
	Description string               `json:"description"`
	Selector    metav1.LabelSelector `json:"selector"`
	Profile     *profileSpec         `json:"profile"`
	// ProfileRef names a PartitioningProfile.
	ProfileRef *struct {
		Name string `json:"name"`
	} `json:"profileRef"`
}
