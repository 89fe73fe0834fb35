# SPDX-License-Identifier: Apache-2.0
# Kernels for NVIDIA GPUs: src/compute/cuda/device/*.cu, compiled by nvcc to one image each, which is built into the program.
# The host code is C and needs neither headers nor libraries of the toolkit, so CMake's language CUDA is not enabled.
# Without nvcc the table of images is empty: the program works, and says at `device: cuda` what it was built without.
set(LS_CUDA "AUTO" CACHE STRING "kernels for NVIDIA GPUs: AUTO (when nvcc is found), ON (nvcc is required) or OFF")
if(LS_CUDA STREQUAL "OFF")
  set(LS_NVCC "")
else()
  find_program(NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  set(LS_NVCC ${NVCC})
  if(NOT NVCC)
    set(LS_NVCC "")
    if(LS_CUDA STREQUAL "ON")
      message(FATAL_ERROR "LS_CUDA is ON and no nvcc was found: install the CUDA toolkit, or leave LS_CUDA at AUTO")
    endif()
  endif()
endif()

file(GLOB LS_CUDA_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/compute/cuda/device/*.cu)

# A100 and its like run sm_80, H100 sm_90, and newer ones what their driver makes of compute_80. Files *_sm90.cu use
# instructions that exist on capability 9.0 alone.
set(LS_CUDA_ARCHITECTURES -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=sm_90)
set(LS_CUDA_ARCHITECTURES_SM90 -gencode arch=compute_90a,code=sm_90a)

# ls_cuda_embed(TARGET): compiles the kernels and builds them into TARGET as the table ls_cuda_images (compute/cuda/images.h).
# What ptxas says about registers is kept beside each image, in <name>.ptxas.
function(ls_cuda_embed target)
  set(folder ${PROJECT_BINARY_DIR}/generated/cuda)
  file(MAKE_DIRECTORY ${folder})
  set(declarations "")
  set(table "")
  set(images "")
  if(LS_NVCC)
    foreach(source ${LS_CUDA_KERNELS})
      get_filename_component(name ${source} NAME_WE)
      set(image ${folder}/${name}.fatbin)
      set(architectures ${LS_CUDA_ARCHITECTURES})
      if(name MATCHES "_sm90$")
        set(architectures ${LS_CUDA_ARCHITECTURES_SM90})
      endif()
      add_custom_command(OUTPUT ${image} DEPENDS ${source} DEPFILE ${folder}/${name}.d VERBATIM
        COMMENT "Compiling kernels ${name}.cu"
        COMMAND ${CMAKE_COMMAND} -DNVCC=${LS_NVCC} -DLOG=${folder}/${name}.ptxas
                -P ${PROJECT_SOURCE_DIR}/cmake/nvcc.cmake --
                -fatbin -std=c++17 -O3 ${architectures} -I ${PROJECT_SOURCE_DIR}/src -Xptxas -v
                -MD -MF ${folder}/${name}.d -MT ${image} -o ${image} ${source})
      list(APPEND images ${image})
      string(APPEND declarations
        "__asm__(\".section .rodata\\n\"\n"
        "        \".balign 64\\n\"\n"
        "        \"ls_cuda_image_${name}: .incbin \\\"${image}\\\"\\n\"\n"
        "        \"ls_cuda_image_${name}_end: .byte 0\\n\"\n"
        "        \".previous\\n\");\n"
        "extern const unsigned char ls_cuda_image_${name}[], ls_cuda_image_${name}_end[];\n")
      string(APPEND table "    {\"${name}\", ls_cuda_image_${name}, ls_cuda_image_${name}_end},\n")
    endforeach()
  endif()
  set(output ${folder}/images.c)
  file(CONFIGURE OUTPUT ${output} CONTENT
"/* Made by cmake/cuda.cmake. */
#include \"compute/cuda/images.h\"

${declarations}
const ls_cuda_image ls_cuda_images[] = {
${table}    {0},
};
")
  set_source_files_properties(${output} PROPERTIES OBJECT_DEPENDS "${images}")
  target_sources(${target} PRIVATE ${output})
endfunction()
