# merge.cmake: copies a static library and adds the objects of another one that match a pattern.
# Usage: cmake -DAR=ar -DLIBRARY=FILE -DFROM=FILE -DOBJECTS=REGEX -DOUT=FILE -P merge.cmake
set(DIR ${OUT}.objects)
file(REMOVE_RECURSE ${DIR})
file(MAKE_DIRECTORY ${DIR})
file(COPY_FILE ${LIBRARY} ${OUT})
execute_process(COMMAND ${AR} t ${FROM} OUTPUT_VARIABLE NAMES COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" NAMES "${NAMES}")
list(FILTER NAMES INCLUDE REGEX "${OBJECTS}")
execute_process(COMMAND ${AR} x ${FROM} ${NAMES} WORKING_DIRECTORY ${DIR} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${AR} rcs ${OUT} ${NAMES} WORKING_DIRECTORY ${DIR} COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${DIR})
