// Package kaiwo converts the objects of Kaiwo that partition AMD GPUs, of its three generations:
// KaiwoNode (kaiwo.silogen.ai), PartitioningProfile, and PartitioningPlan, whose rules refer to
// PartitioningProfiles or contain them (infrastructure.silogen.ai).
//
// They select nodes, and name profiles of AMD's device config manager, which the package dcm reads.
// So they become commands that label nodes. Kaiwo brings the profiles spx and cpx if there are none.
package kaiwo
